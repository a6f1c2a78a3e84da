// lane: netns
// Tests lib/verbs/lost-ports.ts: a bridge that another program deletes while pods live on it.
import assert from 'node:assert/strict'
import { inNamespaces, isSilent, type Namespace, ping, plugin } from '../../support/harness.ts'
import { bridgeConf, containerId, type Network, network } from '../../support/network.ts'
import { shimmed } from '../../support/tool-shims.ts'

const NAMES = ['node', 'plain', 'hairpin', 'locked', 'one', 'two', 'next', 'last'] as const
type Place = Record<(typeof NAMES)[number], Namespace>
const KEYS = {
  plain: {},
  hairpin: { hairpinMode: true },
  locked: { macspoofchk: true },
  one: { portIsolation: true },
  two: { portIsolation: true },
} as const
const OLD = Object.keys(KEYS) as (keyof typeof KEYS)[]

describe('a bridge that was deleted under living pods', () => {
  it(
    'the ADD that makes it again joins the old pods again, with all settings of their ports, and they reach everybody at once',
    inNamespaces(NAMES, async (place) => {
      const { node, next, last } = place
      const { net, addresses } = await pods(place)
      const before = await ports(node)
      assert.equal(before.length, OLD.length)
      await node.ip('link', 'delete', 'br0')
      assert.deepEqual(await ports(node), [])
      const given = (await net.add(next))['ips'].map(({ address }: { address: string }) => address.split('/')[0])
      assert.deepEqual(
        (await ports(node)).filter(({ name }) => before.some((one) => one.name === name)),
        before,
      )
      for (const name of OLD)
        for (const address of addresses[name]) {
          assert.ok(await ping(node, address), `node to ${name} at ${address}`)
          assert.ok(await ping(next, address), `the new pod to ${name} at ${address}`)
        }
      for (const name of OLD)
        for (const address of given) assert.ok(await ping(place[name], address), `${name} to ${address}`)
      assert.ok(await isSilent(place.one, addresses.two[0] as string))
      // The pod forges another MAC address.
      await place.locked.ip('link', 'set', 'dev', 'eth0', 'address', '02:00:00:00:00:66')
      assert.ok(await isSilent(place.locked, '10.1.0.1'))
      await net.add(last)
      for (const name of [...OLD, 'next', 'last'] as const) await net.del(place[name])
      assert.deepEqual(await ports(node), [])
    }),
  )

  it(
    'when that ADD is killed after it made the bridge, the next ADD joins the old pods',
    inNamespaces(NAMES, async (place) => {
      const { node, next, last } = place
      const { net, addresses } = await pods(place)
      const before = await ports(node)
      await node.ip('link', 'delete', 'br0')
      const { file } = shimmed('bridge', {
        ip: `"$real" "$@" <"$input"
status=$?
if grep -q "link add name br0" "$input"; then kill -KILL $PPID; fi
exit $status`,
      })
      const call = { conf: net.conf, containerId: containerId(next), netns: next, file }
      assert.notEqual((await plugin('bridge', { ...call, command: 'ADD' }, node)).status, 0)
      await node.ip('link', 'show', 'dev', 'br0')
      await net.del(next)
      await net.add(last)
      assert.deepEqual(
        (await ports(node)).filter(({ name }) => before.some((one) => one.name === name)),
        before,
      )
      for (const name of OLD)
        for (const address of addresses[name]) assert.ok(await ping(last, address), `${name} at ${address}`)
    }),
  )

  it(
    'a port that another program has put elsewhere stays there, and so does a pod of another bridge',
    inNamespaces(NAMES, async (place) => {
      const { node, next } = place
      const { net } = await pods(place)
      const other = network(node, bridgeConf({ bridge: 'br1' }, '10.2.0.0/24'))
      await other.add(place.last)
      const [first] = await ports(node)
      await node.exec([
        'sh',
        '-ec',
        `ip link delete br0; ip link add br9 type bridge; ip link set ${first?.name} master br9`,
      ])
      await node.ip('link', 'delete', 'br1')
      await net.add(next)
      const links = await node.json('link')
      assert.equal(links.find(({ ifname }) => ifname === first?.name)?.['master'], 'br9')
      assert.equal(links.filter(({ master }) => master === 'br0').length, OLD.length)
      assert.equal(links.filter(({ linkinfo, master }) => linkinfo?.info_kind === 'veth' && !master).length, 1)
    }),
  )
})

/** Pods with one setting each, that reach each other. */
async function pods(place: Place): Promise<{ net: Network; addresses: Record<keyof typeof KEYS, string[]> }> {
  const conf = bridgeConf({ isGateway: true }, '10.1.0.0/24', 'fd00:1::/64')
  const net = network(place.node, conf)
  const addresses: Partial<Record<keyof typeof KEYS, string[]>> = {}
  for (const name of OLD) {
    const { ips } = await net.add(place[name], { conf: { ...conf, ...KEYS[name] } })
    addresses[name] = ips.map(({ address }: { address: string }) => address.split('/')[0])
    // The pod knows the MAC address of the gateway, and that of the new bridge differs.
    assert.ok(await ping(place[name], '10.1.0.1'))
    assert.ok(await ping(place[name], 'fd00:1::1'))
  }
  return { net, addresses: addresses as Record<keyof typeof KEYS, string[]> }
}

interface Port {
  readonly name: string
  readonly [setting: string]: unknown
}

/** The ports of br0 with their settings and their fixed addresses, by name. */
async function ports(node: Namespace): Promise<Port[]> {
  const links = (await node.json('link')).filter(({ master }) => master === 'br0')
  const { stdout } = await node.exec(['bridge', '-j', 'fdb', 'show'])
  const fixed = (JSON.parse(stdout || '[]') as Record<string, unknown>[]).filter(
    ({ state, flags }) => state === 'static' && (flags as string[]).includes('sticky'),
  )
  return links
    .map(({ ifname, operstate, linkinfo }): Port => {
      const { hairpin, isolated, locked, learning, state } = linkinfo.info_slave_data
      const macs = fixed.flatMap(({ ifname: dev, mac }) => (dev === ifname ? [mac] : []))
      return { name: ifname, operstate, hairpin, isolated, locked, learning, state, macs }
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
}
