// lane: netns
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace, ping, type Row, snapshot, until } from '../../support/harness.ts'
import { bridgeConf, network, traces } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

// BR 48 to 51 need a kernel whose bridges filter VLANs (CONFIG_BRIDGE_VLAN_FILTERING): vlan.test.ts has them. That such a
// bridge is asked for, and with which VLANs, is tested as text in test/plugins/bridge.test.ts.

testPlugin({
  type: 'bridge',
  conf: () => bridgeConf({ isDefaultGateway: true, ipMasq: true, hairpinMode: true }, '10.1.0.0/24', 'fd00:1::/64'),
  refused: (conf) => ({ ...conf, promiscMode: true }),
  again: 'refused',
  async works(_, result, node) {
    const addresses: string[] = (result['ips'] ?? [result['ip4'], result['ip6']]).map(
      (ip: Row) => (ip['address'] ?? ip['ip']).split('/')[0],
    )
    assert.equal(addresses.length, 2)
    for (const address of addresses) await until(() => ping(node, address))
  },
})

describe('bridge: the links', () => {
  it(
    'makes the bridge, up, with the mtu of the configuration',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await network(node, bridgeConf({ mtu: 1400, isGateway: true })).add(pod)
      const [br0] = await node.json('link', 'show', 'dev', 'br0')
      assert.deepEqual(
        { kind: br0?.['linkinfo'].info_kind, mtu: br0?.['mtu'], up: br0?.['flags'].includes('UP') },
        { kind: 'bridge', mtu: 1400, up: true },
      )
      const [eth0] = await pod.json('link', 'show', 'dev', 'eth0')
      const [port] = await node.json('link', 'show', 'type', 'veth')
      assert.deepEqual([eth0?.['mtu'], port?.['mtu']], [1400, 1400])
    }),
  )

  it(
    'takes a bridge that is there as it is: its ports, mtu and MAC stay',
    inNamespaces(['node', 'pod', 'foreign'], async ({ node, pod, foreign }) => {
      await node.ip('link', 'add', 'br0', 'address', '02:00:00:00:00:99', 'type', 'bridge')
      await node.ip('link', 'set', 'br0', 'mtu', '1380')
      await node.ip('link', 'add', 'p0', 'master', 'br0', 'type', 'veth', 'peer', 'name', 'p0', 'netns', foreign.path)
      const net = network(node, bridgeConf({ isGateway: true }))
      const result = await net.add(pod)
      assert.deepEqual(result['interfaces'][0], { name: 'br0', mac: '02:00:00:00:00:99', mtu: 1380 })
      await net.check(pod, result)
      await net.del(pod)
      const [br0] = await node.json('link', 'show', 'dev', 'br0')
      assert.deepEqual(
        [
          br0?.['address'],
          br0?.['mtu'],
          (await node.json('link', 'show', 'master', 'br0')).map(({ ifname }) => ifname),
        ],
        ['02:00:00:00:00:99', 1380, ['p0']],
      )
    }),
  )

  it(
    "refuses a link of the bridge's name that is none, leaves it untouched and frees the address",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await node.ip('link', 'add', 'br0', 'type', 'veth', 'peer', 'name', 'x0')
      const before = await snapshot(node)
      const net = network(node, bridgeConf({ isGateway: true }))
      const { code, msg, details } = await net.fails('ADD', pod)
      assert.deepEqual(
        { code, msg, details },
        {
          code: 7,
          msg: 'Cannot use "br0" as a bridge: "br0" already exists but is not a bridge',
          details: 'it is of type veth; set "bridge" to another name',
        },
      )
      assert.deepEqual(traces(pod, net.conf), [])
      assert.deepEqual((await node.json('addr', 'show', 'dev', 'br0'))[0]?.['addr_info'], [])
      assert.equal(await snapshot(node), before)
    }),
  )

  it(
    'without ipam: three interfaces, the container end up, no addresses, and CHECK passes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      for (const ipam of [undefined, {}, { type: '' }]) {
        const net = network(node, bridgeConf({ ipam }))
        const result = await net.add(pod)
        assert.deepEqual(Object.keys(result), ['cniVersion', 'interfaces'])
        const [br0, port, eth0] = result['interfaces']
        assert.equal(result['interfaces'].length, 3)
        assert.deepEqual(
          [br0.name, (await node.json('link', 'show', 'master', 'br0'))[0]?.['ifname'], eth0.name, eth0.sandbox],
          ['br0', port.name, 'eth0', pod.path],
        )
        assert.ok((await pod.json('link', 'show', 'dev', 'eth0'))[0]?.['flags'].includes('UP'))
        await net.check(pod, result)
        await net.del(pod)
      }
    }),
  )

  it(
    'DEL of an attachment that was never added, and DEL twice, succeed; DEL frees the address whether the namespace is there or not',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf())
      await net.del(pod)
      for (const netns of [pod, '', '/run/netns/gone', null]) {
        await net.add(pod)
        assert.notDeepEqual(traces(pod, net.conf), [])
        await net.del(pod, { netns })
        assert.deepEqual(traces(pod, net.conf), [])
        assert.deepEqual(await node.json('link', 'show', 'type', 'veth'), [])
        await net.del(pod, { netns })
      }
    }),
  )

  it(
    'promiscMode sets the bridge promiscuous, and CHECK sees when that is undone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ promiscMode: true }))
      const result = await net.add(pod)
      assert.ok((await node.json('link', 'show', 'dev', 'br0'))[0]?.['flags'].includes('PROMISC'))
      await net.check(pod, result)
      await node.ip('link', 'set', 'br0', 'promisc', 'off')
      assert.match(
        (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
        /link br0 has promisc off, want true/,
      )
    }),
  )

  for (const isGateway of [true, false]) {
    it(
      `${isGateway ? 'a gateway' : 'an L2'} bridge keeps its MAC while ports come and go, and CHECK of an old pod goes on passing`,
      inNamespaces(['node', 'old', 'low', 'foreign'], async ({ node, old, low, foreign }) => {
        const net = network(node, bridgeConf({ isGateway }))
        const result = await net.add(old)
        // A port whose MAC is lower than any: what an unpinned bridge would take for its own.
        await node.ip(
          'link',
          'add',
          'p0',
          'address',
          '00:00:00:00:00:01',
          'master',
          'br0',
          'type',
          'veth',
          'peer',
          'name',
          'p0',
          'netns',
          foreign.path,
        )
        await net.add(low, { args: 'MAC=00:00:00:00:00:02' })
        await net.check(old, result)
        await net.del(low)
        await node.ip('link', 'delete', 'p0')
        await net.check(old, result)
        assert.equal(await mac(node, 'br0'), result['interfaces'][0].mac)
      }),
    )
  }

  for (const mounted of ['this namespace', 'another namespace'])
    it(
      `a gateway bridge that was there before keeps its MAC from before its first port to after its last, where sysfs shows ${mounted}`,
      inNamespaces(['node', 'low', 'pod'], async ({ node, low, pod }) => {
        // A plugin reads sysfs as the node has it mounted.
        const withSysfs = `${mkdtempSync('/run/sysfs-')}/bridge`
        writeFileSync(
          withSysfs,
          `#!/bin/sh\nexec unshare -m sh -c 'mount -t sysfs none /sys && exec "$0"' ${join(import.meta.dir, '../../../dist/bridge')}\n`,
          { mode: 0o755 },
        )
        const asked = mounted === 'this namespace' ? { file: withSysfs } : {}
        await node.ip('link', 'add', 'br0', 'up', 'type', 'bridge')
        const before = await mac(node, 'br0')
        const net = network(node, bridgeConf({ isGateway: true }))
        const result = await net.add(pod, asked)
        assert.deepEqual([result['interfaces'][0].mac, await mac(node, 'br0')], [before, before])
        await net.add(low, { ...asked, args: 'MAC=00:00:00:00:00:02' })
        await net.del(pod, asked)
        await net.del(low, asked)
        await node.ip(
          'link',
          'add',
          'p0',
          'address',
          '00:00:00:00:00:01',
          'master',
          'br0',
          'type',
          'veth',
          'peer',
          'name',
          'p1',
        )
        await node.ip('link', 'delete', 'p0')
        assert.equal(await mac(node, 'br0'), before)
        // One that has lost its MAC with its last port gets another for good.
        await node.ip('link', 'delete', 'br0')
        await node.ip('link', 'add', 'br0', 'up', 'type', 'bridge')
        await node.ip('link', 'add', 'p0', 'master', 'br0', 'type', 'veth', 'peer', 'name', 'p1')
        await node.ip('link', 'delete', 'p0')
        const again = await net.add(pod, asked)
        await net.del(pod, asked)
        assert.equal(await mac(node, 'br0'), again['interfaces'][0].mac)
      }),
    )

  it(
    'interfaces have mtu from 1.1.0 on, and not before',
    inNamespaces(['node', 'pod', 'older'], async ({ node, pod, older }) => {
      const net = network(node, bridgeConf({ mtu: 1420 }))
      assert.deepEqual(
        (await net.add(pod))['interfaces'].map(({ mtu }: Row) => mtu),
        [1420, 1420, 1420],
      )
      const before = await net.add(older, { conf: { ...net.conf, cniVersion: '1.0.0' } })
      assert.deepEqual(
        before['interfaces'].map((one: Row) => 'mtu' in one),
        [false, false, false],
      )
    }),
  )

  it(
    'a taken interface name is a clear error; the other link and the node are untouched',
    inNamespaces(['node', 'pod', 'foreign'], async ({ node, pod, foreign }) => {
      await pod.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'x0', 'netns', foreign.path)
      await pod.ip('addr', 'add', '10.9.0.1/24', 'dev', 'eth0')
      const net = network(node, bridgeConf({ isGateway: true }))
      const before = await snapshot(pod)
      const { msg, details } = await net.fails('ADD', pod)
      assert.deepEqual(
        { msg, details },
        {
          msg: `Cannot create eth0 in ${pod.path}: a link of that name is there already`,
          details: 'it is left as it is; delete it, or use another CNI_IFNAME',
        },
      )
      assert.equal(await snapshot(pod), before)
      assert.deepEqual(await node.json('link', 'show', 'type', 'veth'), [])
      assert.deepEqual(traces(pod, net.conf), [])
      await net.add(pod, { ifname: 'eth1' })
    }),
  )
})

async function mac(ns: Namespace, dev: string): Promise<string> {
  return (await ns.json('link', 'show', 'dev', dev))[0]?.['address']
}
