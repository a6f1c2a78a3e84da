// lane: vm
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { inNamespaces, isSilent, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'

/**
 * A network on br0 in 10.1.0.0/24 whose addresses begin at a number: what its pods reach is a matter of VLANs alone.
 */
function conf(keys: object, first: number): ReturnType<typeof bridgeConf> {
  const { ipam, ...rest } = bridgeConf(keys)
  return { ...rest, ipam: { ...ipam, ranges: [[{ subnet: '10.1.0.0/24', rangeStart: `10.1.0.${first}` }]] } }
}

/** The VLANs of a port, `100 PVID` for the native, untagged one. */
async function vlans(node: Namespace, port: string): Promise<string[]> {
  const { stdout } = await node.exec(['bridge', '-j', 'vlan', 'show', 'dev', port])
  const [{ vlans }] = JSON.parse(stdout) as [{ vlans: Row[] }]
  return vlans.map(({ vlan, flags = [] }) => [vlan, ...flags.filter((one: string) => one === 'PVID')].join(' '))
}

function portOf({ interfaces }: Row): string {
  return interfaces[1].name
}

function address({ ips }: Row): string {
  return ips[0].address.split('/')[0]
}

/** A link in a trunk's pod that sends and takes what is tagged so. */
async function tag(pod: Namespace, id: number, cidr: string): Promise<void> {
  await pod.ip('link', 'add', 'link', 'eth0', 'name', `eth0.${id}`, 'type', 'vlan', 'id', `${id}`)
  await pod.ip('addr', 'add', cidr, 'dev', `eth0.${id}`)
  await pod.ip('link', 'set', 'dev', `eth0.${id}`, 'up')
}

describe('bridge with VLANs', () => {
  // What is noted of one node's br0.100 would be another's.
  afterEach(() => rmSync('/run/cni/plumb', { recursive: true, force: true }))

  it(
    'BR 48: a port of vlan 100 is in it untagged and no longer in VLAN 1, unless preserveDefaultVlan; its pods reach those of VLAN 100 alone',
    inNamespaces(['node', 'one', 'two', 'other', 'kept'], async ({ node, one, two, other, kept }) => {
      const [hundred, elsewhere] = [network(node, conf({ vlan: 100 }, 10)), network(node, conf({ vlan: 200 }, 50))]
      const [first, second, third] = [await hundred.add(one), await hundred.add(two), await elsewhere.add(other)]
      assert.deepEqual(
        [await vlans(node, portOf(first)), await vlans(node, portOf(third))],
        [['100 PVID'], ['200 PVID']],
      )
      assert.ok(await until(() => ping(one, address(second))))
      assert.ok(await isSilent(one, address(third)))
      await hundred.check(one, first)
      await node.exec(['bridge', 'vlan', 'delete', 'vid', '100', 'dev', portOf(first)])
      assert.match(
        (await hundred.fails('CHECK', one, { conf: { ...hundred.conf, prevResult: first } })).msg,
        /VLAN|vlan/,
      )
      const preserved = await network(node, conf({ vlan: 100, preserveDefaultVlan: true }, 90)).add(kept)
      assert.deepEqual(await vlans(node, portOf(preserved)), ['1', '100 PVID'])
      assert.ok(await until(() => ping(kept, address(second))))
    }),
  )

  it(
    'BR 49, BR 50: vlanTrunk passes its VLANs tagged and no others, beside VLAN 1 or beside vlan as the native one',
    inNamespaces(['node', 'access', 'trunk', 'both', 'native'], async ({ node, access, trunk, both, native }) => {
      const inside = await network(node, conf({ vlan: 101 }, 10)).add(access)
      const plain = await network(node, conf({ vlan: 100 }, 20)).add(native)
      const range = Array.from({ length: 11 }, (_, i) => `${200 + i}`)
      const vlanTrunk = [{ id: 101 }, { minID: 200, maxID: 210 }]
      const { ipam: _, ...l2 } = conf({ vlanTrunk }, 0)
      const carried = await network(node, l2).add(trunk)
      assert.deepEqual(await vlans(node, portOf(carried)), ['1 PVID', '101', ...range])
      const mixed = await network(node, conf({ vlan: 100, vlanTrunk }, 30)).add(both)
      assert.deepEqual(await vlans(node, portOf(mixed)), ['100 PVID', '101', ...range])
      await tag(trunk, 101, '10.1.0.201/24')
      await tag(trunk, 102, '10.2.0.201/24')
      assert.ok(await until(() => ping(trunk, address(inside))))
      // What is tagged with both's own trunk comes out there tagged, too; what is not tagged is VLAN 100's.
      await tag(both, 101, '10.3.0.202/24')
      await tag(both, 102, '10.2.0.202/24')
      await trunk.ip('addr', 'add', '10.3.0.201/24', 'dev', 'eth0.101')
      assert.ok(await until(() => ping(trunk, '10.3.0.202')))
      assert.ok(await until(() => ping(native, address(mixed))))
      assert.ok(await isSilent(native, address(inside)))
      assert.ok(await isSilent(trunk, '10.2.0.202'), 'VLAN 102 is in no trunk')
      assert.equal(address(plain), '10.1.0.20')
    }),
  )

  it(
    'BR 51: with isGateway the gateway stands on br0.100, which all networks of the VLAN share and the last DEL, or GC, removes with its port',
    inNamespaces(['node', 'one', 'two', 'other'], async ({ node, one, two, other }) => {
      const net = network(node, conf({ vlan: 100, isGateway: true }, 10))
      const second = network(node, conf({ vlan: 100, isDefaultGateway: true }, 50))
      const links = async () => (await node.json('link')).map(({ ifname }) => ifname).sort()
      const result = await net.add(one)
      assert.equal(result['interfaces'][3].name, 'br0.100')
      assert.equal(result['interfaces'][3].mac, (await node.json('link', 'show', 'br0.100'))[0]?.['address'])
      const held = (await node.json('addr', 'show', 'br0.100'))[0]?.['addr_info'].map(
        ({ local, prefixlen }: Row) => `${local}/${prefixlen}`,
      )
      assert.ok(held.includes('10.1.0.1/24'), held)
      assert.ok(await until(() => ping(one, '10.1.0.1')))
      await net.check(one, result)
      const further = await second.add(other)
      for (const pod of [one, other]) assert.ok(await until(() => ping(pod, '10.1.0.1')))
      assert.ok(await until(() => ping(one, address(further))))
      await net.add(two)
      const all = await links()
      await net.del(one)
      await net.del(one)
      assert.deepEqual(
        await links(),
        all.filter((name) => name !== portOf(result)),
      )
      assert.deepEqual(traces(one, net.conf), [])
      assert.ok(await until(() => ping(two, '10.1.0.1')))
      await second.check(other, further)
      // A DEL without the namespace, and by a configuration that names no VLAN any more.
      await second.del(other, { netns: '', conf: { ...second.conf, vlan: 0 } })
      assert.ok((await links()).includes('br0.100'))
      await net.gc()
      assert.deepEqual(await links(), ['br0', 'lo'])
      assert.deepEqual(traces(two, net.conf), [])
      await net.add(one)
      await net.del(one)
      assert.deepEqual(await links(), ['br0', 'lo'])
    }),
  )

  it(
    'BR 51: an ADD that fails takes br0.100 away only when it was alone, and leaves one that another program made',
    inNamespaces(['node', 'one', 'two'], async ({ node, one, two }) => {
      const net = network(node, conf({ vlan: 100, isGateway: true }, 10))
      await two.ip('link', 'add', 'eth0', 'type', 'dummy')
      const names = async () => (await node.json('link')).map(({ ifname }) => ifname).filter((name) => /\./.test(name))
      assert.match((await net.fails('ADD', two)).msg, /already/)
      assert.deepEqual(await names(), [])
      await net.add(one)
      assert.match((await net.fails('ADD', two)).msg, /already/)
      assert.match((await net.fails('ADD', one)).msg, /duplicate|already/)
      assert.deepEqual(await names(), ['br0.100'])
      assert.ok(await until(() => ping(one, '10.1.0.1')))
      await net.del(one)
      await node.ip('link', 'add', 'br0.100', 'type', 'veth', 'peer', 'name', 'theirs')
      await node.ip('link', 'set', 'dev', 'theirs', 'up', 'master', 'br0')
      await node.exec(['bridge', 'vlan', 'add', 'vid', '100', 'pvid', 'untagged', 'dev', 'theirs'])
      const { status, stdout } = await plugin(
        'bridge',
        { command: 'ADD', conf: net.conf, containerId: containerId(one), netns: one },
        node,
      )
      assert.equal(status, 0, stdout)
      assert.ok(await until(() => ping(one, '10.1.0.1')))
      await net.del(one)
      assert.deepEqual(await names(), ['br0.100'])
    }),
  )

  it(
    'a bridge that was deleted under living pods: the next ADD brings back the VLANs of their ports and their gateway',
    inNamespaces(['node', 'one', 'trunk', 'other', 'next'], async ({ node, one, trunk, other, next }) => {
      const hundred = network(node, conf({ vlan: 100, isGateway: true }, 10))
      const { ipam: _, ...l2 } = conf({ vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] }, 0)
      const elsewhere = network(node, conf({ vlan: 101 }, 50))
      const added = [await hundred.add(one), await network(node, l2).add(trunk), await elsewhere.add(other)]
      await tag(trunk, 101, '10.1.0.201/24')
      const seen = () => Promise.all(added.map((one) => vlans(node, portOf(one))))
      const before = await seen()
      await node.ip('link', 'delete', 'br0')
      const last = await hundred.add(next)
      assert.deepEqual(await seen(), before)
      for (const pod of [one, next]) assert.ok(await ping(pod, '10.1.0.1'))
      assert.ok(await ping(next, address(added[0] as Row)))
      assert.ok(await until(() => ping(trunk, address(added[2] as Row))))
      assert.ok(await isSilent(other, address(last)))
    }),
  )
})
