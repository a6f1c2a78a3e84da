// lane: netns
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { inNamespaces, type Namespace, type Row, snapshot } from '../../support/harness.ts'
import { bridgeConf, network, settled } from '../../support/network.ts'

type Place = Record<'node' | 'pod' | 'other', Namespace> & { readonly port: string }
const KEYS = { isDefaultGateway: true, ipMasq: true, macspoofchk: true, hairpinMode: true, mtu: 1400 }
const ROUTES = [{ dst: '10.8.0.0/16', mtu: 1300 }, { dst: '10.7.0.0/16', table: 100 }, { dst: 'fd08::/32' }]

/** What goes wrong with an attachment, and what CHECK says of it. */
const FAULTS: Record<string, { readonly break: (at: Place) => Promise<unknown>; readonly says: RegExp }> = {
  'the link is gone': { break: ({ pod }) => pod.ip('link', 'delete', 'eth0'), says: /link veth\w+ is missing/ },
  'the link is renamed': {
    break: ({ pod }) => sh(pod, 'ip link set eth0 down; ip link set eth0 name eth9; ip link set eth9 up'),
    says: /link eth0 in the pod is missing/,
  },
  'the link is down': {
    break: ({ pod }) => pod.ip('link', 'set', 'eth0', 'down'),
    says: /link eth0 in the pod has up off, want true/,
  },
  'the MAC is another': {
    break: ({ pod }) => pod.ip('link', 'set', 'eth0', 'address', '02:00:00:00:00:42'),
    says: /link eth0 in the pod has mac 02:00:00:00:00:42, want 02:/,
  },
  'the master is another': {
    break: ({ node, port }) => sh(node, `ip link add br9 type bridge; ip link set ${port} master br9`),
    says: /link veth\w+ has port\.master br9, want br0/,
  },
  'the port has no master, which is the only thing that is named of the port': {
    break: ({ node, port }) => node.ip('link', 'set', port, 'nomaster'),
    says: /^(?!.*port\.(?:isolated|hairpin|locked)).*link veth\w+ has port\.master off, want br0/,
  },
  'the bridge is gone': { break: ({ node }) => node.ip('link', 'delete', 'br0'), says: /link br0 is missing/ },
  'the bridge is down': {
    break: ({ node }) => node.ip('link', 'set', 'br0', 'down'),
    says: /link br0 has up off, want true/,
  },
  'the IPv4 address is missing': {
    break: ({ pod }) => pod.ip('addr', 'delete', '10.1.0.2/24', 'dev', 'eth0'),
    says: /address 10\.1\.0\.2\/24 on eth0 in the pod is missing/,
  },
  'the IPv6 address is missing': {
    break: ({ pod }) => pod.ip('addr', 'delete', 'fd00:1::2/64', 'dev', 'eth0'),
    says: /address fd00:1::2\/64 on eth0 in the pod is missing/,
  },
  'a route is missing': {
    break: ({ pod }) => pod.ip('route', 'delete', '10.8.0.0/16'),
    says: /route 10\.8\.0\.0\/16 in the pod is missing/,
  },
  'an IPv6 route is missing': {
    break: ({ pod }) => pod.ip('-6', 'route', 'delete', 'fd08::/32'),
    says: /route fd08::\/32 in the pod is missing/,
  },
  'a route of a table is missing': {
    break: ({ pod }) => pod.ip('route', 'flush', 'table', '100'),
    says: /route 10\.7\.0\.0\/16 in the pod is missing/,
  },
  'a route has another mtu': {
    break: ({ pod }) => sh(pod, 'ip route replace 10.8.0.0/16 via 10.1.0.1 mtu 1299'),
    says: /route 10\.8\.0\.0\/16 in the pod has mtu 1299, want 1300/,
  },
  'the default gateway is another': {
    break: ({ pod }) => pod.ip('route', 'replace', 'default', 'via', '10.1.0.77'),
    says: /route 0\.0\.0\.0\/0 in the pod has via 10\.1\.0\.77, want 10\.1\.0\.1/,
  },
  'the masquerading is flushed': {
    break: ({ node }) => sh(node, 'nft flush set inet plumb masq4'),
    says: /nft element 10\.1\.0\.2 of masq4 is missing/,
  },
  'the firewall is flushed': {
    break: ({ node }) => sh(node, 'nft flush ruleset'),
    says: /nft element 10\.1\.0\.2 of masq4 is missing.*nft chain postrouting has 0 rules, want 2/,
  },
  'the masquerade rules are flushed': {
    break: ({ node }) => sh(node, 'nft flush chain inet plumb postrouting'),
    says: /^nft chain postrouting has 0 rules, want 2$/,
  },
  'the gateway address is gone': {
    break: ({ node }) => node.ip('addr', 'delete', '10.1.0.1/24', 'dev', 'br0'),
    says: /address 10\.1\.0\.1\/24 on br0 is missing/,
  },
  'the IPv6 gateway address is gone': {
    break: ({ node }) => node.ip('addr', 'delete', 'fd00:1::1/64', 'dev', 'br0'),
    says: /address fd00:1::1\/64 on br0 is missing/,
  },
  'the MTU of the container end is another': {
    break: ({ pod }) => pod.ip('link', 'set', 'eth0', 'mtu', '1280'),
    says: /link eth0 in the pod has mtu 1280, want 1400/,
  },
  'the MTU of the host end is another': {
    break: ({ node, port }) => node.ip('link', 'set', port, 'mtu', '1280'),
    says: /link veth\w+ has mtu 1280, want 1400/,
  },
  'hairpin is off': {
    break: ({ node, port }) => sh(node, `bridge link set dev ${port} hairpin off`),
    says: /link veth\w+ has port\.hairpin off, want true/,
  },
  'the port is isolated': {
    break: ({ node, port }) => sh(node, `bridge link set dev ${port} isolated on`),
    says: /link veth\w+ has port\.isolated true, want off/,
  },
  'the port is not locked': {
    break: ({ node, port }) => sh(node, `bridge link set dev ${port} locked off`),
    says: /link veth\w+ has port\.locked off, want true/,
  },
  'the spoof check knows no address': {
    break: ({ node, port }) =>
      sh(
        node,
        `for mac in $(bridge fdb show dev ${port} | grep sticky | cut -d' ' -f1); do bridge fdb delete $mac dev ${port} master; done`,
      ),
    says: /fdb of veth\w+ is missing/,
  },
  'the node does not forward': {
    break: ({ node }) => sh(node, 'echo 0 >/proc/sys/net/ipv4/ip_forward'),
    says: /sysctl net\/ipv4\/ip_forward has value 0, want 1/,
  },
}

/** What others do to an attachment, rightly: prevResult as a chained plugin would hand it on. */
const CHANGES: Record<string, (at: Place, result: Row) => Promise<Row>> = {
  'an earlier version of plumb attached the pod, and set no announcements': async ({ pod }, result) => {
    await sh(pod, 'echo 0 >/proc/sys/net/ipv6/conf/eth0/ndisc_notify; echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_notify')
    return result
  },
  'a later plugin added a route': async ({ pod }, result) => {
    await pod.ip('route', 'add', '10.44.0.0/16', 'via', '10.1.0.1')
    return result
  },
  'a later plugin added an address, a link and a route of its own': async ({ node, pod }, result) => {
    await node.ip('link', 'add', 'bwp0', 'type', 'veth', 'peer', 'name', 'bwp1')
    await pod.ip('addr', 'add', '10.45.0.1/32', 'dev', 'lo')
    return { ...result, interfaces: [...result['interfaces'], { name: 'bwp0', mac: '02:00:00:00:00:07' }] }
  },
  'tuning changed the MAC, and says so': async ({ pod, node, port }, result) => {
    await pod.ip('link', 'set', 'eth0', 'address', '02:00:00:00:00:42')
    await sh(node, `bridge fdb replace 02:00:00:00:00:42 dev ${port} master static sticky`)
    return {
      ...result,
      interfaces: result['interfaces'].map((one: Row) =>
        one['name'] === 'eth0' ? { ...one, mac: '02:00:00:00:00:42' } : one,
      ),
    }
  },
  'tuning changed the MTU, and says so': async ({ pod }, result) => {
    await pod.ip('link', 'set', 'eth0', 'mtu', '1300')
    return {
      ...result,
      interfaces: result['interfaces'].map((one: Row) => (one['name'] === 'eth0' ? { ...one, mtu: 1300 } : one)),
    }
  },
  'sbr moved a route to a table, and says so': async ({ pod }, result) => {
    await sh(pod, 'ip route delete 10.8.0.0/16; ip route add 10.8.0.0/16 via 10.1.0.1 mtu 1300 table 200')
    return {
      ...result,
      routes: result['routes'].map((one: Row) => (one['dst'] === '10.8.0.0/16' ? { ...one, table: 200 } : one)),
    }
  },
  'the namespace is spelled /var/run': async ({ pod }, result) => ({
    ...result,
    interfaces: result['interfaces'].map((one: Row) => (one['sandbox'] ? { ...one, sandbox: `/var${pod.path}` } : one)),
  }),
  'it says nothing of mtu, as results before 1.1.0': async (_, result) => ({
    ...result,
    cniVersion: '1.0.0',
    interfaces: result['interfaces'].map(({ mtu, ...one }: Row) => one),
  }),
  'another pod of the network came and went': async ({ node, other }, result) => {
    const net = network(node, bridgeConf({ ...KEYS, ipam: undefined }))
    await net.add(other)
    await net.del(other)
    return result
  },
}

describe('bridge: CHECK', () => {
  for (const [what, fault] of Object.entries(FAULTS)) {
    it(
      `fails when ${what}, says so, and changes nothing`,
      inNamespaces(['node', 'pod', 'other'], async (all) => {
        const { net, result, port } = await attached(all)
        await fault.break({ ...all, port })
        const before = await settled(() => both(all))
        const { msg, details } = await net.fails('CHECK', all.pod, { conf: { ...net.conf, prevResult: result } })
        assert.match(msg, /^Cannot confirm eth0 of container pod-\d+: /)
        assert.match(details, fault.says)
        assert.deepEqual(await both(all), before)
      }),
    )
  }

  for (const [what, change] of Object.entries(CHANGES)) {
    it(
      `passes when ${what}`,
      inNamespaces(['node', 'pod', 'other'], async (all) => {
        const { net, result, port } = await attached(all)
        await net.check(all.pod, await change({ ...all, port }, result))
      }),
    )
  }

  it(
    'tells routes to one place apart by their priority, and misses the one that is gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { ipam, ...rest } = bridgeConf({ isDefaultGateway: true }, '10.1.0.0/24', 'fd00:1::/64')
      const routes = ['0.0.0.0/0', '::/0'].flatMap((dst) => [
        { dst, priority: 50, mtu: 1300 },
        { dst, priority: 2000, mtu: 1280 },
      ])
      const net = network(node, { ...rest, ipam: { ...ipam, routes } })
      const result = await net.add(pod)
      await net.check(pod, result)
      for (const family of ['-4', '-6']) await pod.ip(family, 'route', 'delete', 'default', 'metric', '2000')
      const { details } = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.equal(details, 'route 0.0.0.0/0 in the pod is missing; route ::/0 in the pod is missing')
    }),
  )

  it(
    'refuses a call without prevResult',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net } = await attached(all)
      const { code, msg } = await net.fails('CHECK', all.pod)
      assert.deepEqual({ code, msg }, { code: 7, msg: 'Required prevResult missing' })
    }),
  )

  it(
    'fails when the address was given to somebody else',
    inNamespaces(['node', 'pod', 'other'], async (all) => {
      const { net, result } = await attached(all)
      rmSync(`${net.conf.ipam?.dataDir}/${net.conf.name}/10.1.0.2`)
      rmSync(`${net.conf.ipam?.dataDir}/${net.conf.name}/fd00:1::2`)
      const { code, msg } = await net.fails('CHECK', all.pod, { conf: { ...net.conf, prevResult: result } })
      assert.equal(code, 3)
      assert.match(msg, /^Cannot find an address of container pod-\d+ on eth0 in network net\d+$/)
    }),
  )
})

async function attached({
  node,
  pod,
}: Record<'node' | 'pod', Namespace>): Promise<{ net: ReturnType<typeof network>; result: Row; port: string }> {
  await sh(node, 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad')
  const { ipam, ...rest } = bridgeConf(KEYS, '10.1.0.0/24', 'fd00:1::/64')
  const net = network(node, { ...rest, ipam: { ...ipam, routes: ROUTES } })
  const result = await net.add(pod)
  await net.check(pod, result)
  return { net, result, port: result['interfaces'][1].name }
}

async function both({ node, pod }: Record<'node' | 'pod', Namespace>): Promise<string[]> {
  return [await snapshot(node), await snapshot(pod)]
}

async function sh(ns: Namespace, script: string): Promise<void> {
  const { status, stderr } = await ns.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}
