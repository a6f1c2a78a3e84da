// Tests lib/wiring/announcement.ts: an address that is used again by a pod with another MAC address.
import assert from 'node:assert/strict'
import { inNamespaces, type Namespace, until } from '../support/harness.ts'
import { bridgeConf, network } from '../support/network.ts'

// `former` and `next` get the address that ends in 3. `peer` gets the one before.
const SUBNETS = [
  { subnet: '10.1.0.0/24', start: '10.1.0.' },
  { subnet: 'fd00:1::/64', start: 'fd00:1::' },
]
const REUSED = ['10.1.0.3', 'fd00:1::3']
const NAMES = ['node', 'wire', 'outside', 'peer', 'former', 'next'] as const
type Place = Record<(typeof NAMES)[number], Namespace>

/** How each plugin reaches the host `outside`, and who sees the pod's MAC address. */
const KINDS: readonly {
  readonly title: string
  readonly keys: object
  /** Keys of the pod that comes later, where they differ. */
  readonly later?: object
  /** Commands on the node before the first ADD, and after it. */
  readonly before?: string
  readonly after?: string
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
    keys: { type: 'host-device', device: 'up1' },
    later: { device: 'up2' },
    before: 'ip link set up0 up',
    sees: ['outside'],
  },
]

describe('an address that a pod with another MAC address gets', () => {
  for (const { title, keys, later, before, after, sees } of KINDS)
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
        await net.add(next, later ? { conf: { ...conf, ...later } } : {})
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

/** `up0`, `up1` and `up2` of the node lead to a switch in `wire`, as does `eth0` of `outside`. */
async function cable({ node, wire, outside }: Place): Promise<void> {
  await shell(wire, 'ip link add sw type bridge; ip link set sw up')
  for (const [i, at] of [node, node, node, outside].entries())
    await shell(wire, `ip link add p${i} master sw up type veth peer name up${i} netns ${at.path}`)
  await shell(
    outside,
    'ip link set up3 name eth0 up; ip addr add 10.1.0.250/24 dev eth0; ip addr add fd00:1::250/64 dev eth0 nodad',
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
