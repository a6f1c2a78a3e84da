// lane: netns
// Tests lib/wiring/announcement.ts: an address that is used again by a pod with another MAC address.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { bridgeConf, network } from '../../support/network.ts'

// `former` and `next` get the address that ends in 3. `peer` gets the one before.
const SUBNETS = [
  { subnet: '10.1.0.0/24', start: '10.1.0.' },
  { subnet: 'fd00:1::/64', start: 'fd00:1::' },
]
const REUSED = ['10.1.0.3', 'fd00:1::3']
const NAMES = ['node', 'outside', 'peer', 'former', 'next'] as const
type Place = Record<(typeof NAMES)[number], Namespace>

/** How each plugin reaches the host `outside`, and who sees the pod's MAC address. */
const KINDS: readonly {
  readonly title: string
  readonly keys: object
  /** Commands on the node before the first ADD, after it, and after the DEL. */
  readonly before?: string
  readonly after?: string
  readonly between?: string
  readonly sees: readonly ('node' | 'outside' | 'peer')[]
}[] = [
  {
    title: 'bridge',
    keys: { bridge: 'br0', isGateway: true },
    after: 'ip link set up0 master br0 up',
    sees: ['node', 'outside', 'peer'],
  },
  {
    title: 'bridge with macspoofchk, hairpin mode and duplicate address detection',
    keys: { bridge: 'br0', isGateway: true, macspoofchk: true, hairpinMode: true, enabledad: true },
    after: 'ip link set up0 master br0 up',
    sees: ['node', 'outside', 'peer'],
  },
  {
    title: 'macvlan',
    keys: { type: 'macvlan', master: 'up0' },
    before: 'ip link set up0 up',
    sees: ['outside', 'peer'],
  },
  {
    title: 'host-device',
    keys: { type: 'host-device', device: 'up0' },
    between: 'ip link set up0 address 02:00:00:00:00:77',
    sees: ['outside'],
  },
]

describe('an address that a pod with another MAC address gets', () => {
  for (const { title, keys, before, after, between, sees } of KINDS)
    it(
      `${title}: the first packet of ${sees.join(', ')} reaches the new pod, although the old MAC address was known`,
      inNamespaces(NAMES, async (place) => {
        const { node, peer, former, next } = place
        await cable(place)
        if (before) await shell(node, before)
        const ipam = (first: number) => ({
          type: 'host-local',
          dataDir: `/run/told-${node.name}`,
          ranges: SUBNETS.map(({ subnet, start }) => [
            { subnet, rangeStart: `${start}${first}`, rangeEnd: `${start}3` },
          ]),
        })
        const conf = { ...bridgeConf({ bridge: undefined, ...keys }), ipam: ipam(sees.includes('peer') ? 2 : 3) }
        const net = network(node, conf)
        if (sees.includes('peer')) await net.add(peer)
        if (after) await shell(node, after)
        await net.add(former)
        for (const name of sees) await know(place[name])
        await net.del(former)
        const old = Object.fromEntries(await Promise.all(sees.map(async (name) => [name, await known(place[name])])))
        for (const name of sees) assert.match(old[name], /^(\S+ REACHABLE\n){2}$/, name)
        if (between) await shell(node, between)
        await net.add(next)
        const answers = await Promise.all(
          sees.flatMap((name) => REUSED.map(async (address) => [name, address, await first(place[name], address)])),
        )
        assert.deepEqual(
          answers,
          sees.flatMap((name) => REUSED.map((address) => [name, address, true])),
        )
        for (const name of sees) assert.notEqual((await known(place[name])).split(' ')[0], old[name].split(' ')[0])
      }),
    )
})

/**
 * `up0` of the node leads to `eth0` of `outside`. The device of a pod loses its carrier while it moves, and the kernel
 * would forget the neighbours.
 */
async function cable({ node, outside }: Place): Promise<void> {
  await shell(node, `ip link add up0 type veth peer name eth0 netns ${outside.path}`)
  await shell(
    outside,
    'echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_evict_nocarrier; echo 0 >/proc/sys/net/ipv6/conf/eth0/ndisc_evict_nocarrier; ip link set eth0 up; ip addr add 10.1.0.250/24 dev eth0; ip addr add fd00:1::250/64 dev eth0 nodad',
  )
}

/** The host talks to the address, and keeps what it knows of the MAC address for an hour. */
async function know(at: Namespace): Promise<void> {
  await shell(at, 'for f in /proc/sys/net/ipv[46]/neigh/*/base_reachable_time_ms; do echo 3600000 >$f; done')
  for (const address of REUSED) {
    await until(async () => (await at.exec(['ping', '-n', '-q', '-c', '1', '-W', '1', address])).status === 0)
    const [row] = await at.json('neigh', 'show', address)
    await at.ip('neigh', 'change', address, 'dev', row?.['dev'], 'lladdr', row?.['lladdr'], 'nud', 'reachable')
  }
}

/** The MAC address that the host knows for each of the addresses, and how sure it is. */
async function known(at: Namespace): Promise<string> {
  const rows = await Promise.all(REUSED.map((address) => at.json('neigh', 'show', address)))
  return rows
    .flat()
    .map(({ lladdr, state }) => `${lladdr} ${state}\n`)
    .join('')
}

/** Whether the answer to one packet comes. */
async function first(from: Namespace, address: string): Promise<boolean> {
  return (await from.exec(['ping', '-n', '-q', '-c', '1', '-W', '3', address])).status === 0
}

async function shell(at: Namespace, text: string): Promise<void> {
  const { status, stderr } = await at.exec(['sh', '-ec', text])
  assert.equal(status, 0, stderr)
}
