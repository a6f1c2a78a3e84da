// lane: netns
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { inNamespaces, type Namespace, ping, type Row, snapshot, until } from '../../support/harness.ts'
import { bridgeConf, network, settled, traces, worksAtOnce } from '../../support/network.ts'

const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']
/** Subnets, and for each the address that a first pod gets and its gateway. */
const CASES = {
  v4: [['10.1.0.0/24', '10.1.0.2/24', '10.1.0.1']],
  v6: [['fd00:1::/64', 'fd00:1::2/64', 'fd00:1::1']],
  'v4 and v6': [
    ['10.1.0.0/24', '10.1.0.2/24', '10.1.0.1'],
    ['fd00:1::/64', 'fd00:1::2/64', 'fd00:1::1'],
  ],
  'two v4 subnets': [
    ['10.1.0.0/24', '10.1.0.2/24', '10.1.0.1'],
    ['10.2.0.0/16', '10.2.0.2/16', '10.2.0.1'],
  ],
} as const

describe('bridge: addresses and routes', () => {
  for (const [name, subnets] of Object.entries(CASES)) {
    for (const cniVersion of VERSIONS.filter((version) => version >= '0.3.0' || name !== 'two v4 subnets')) {
      it(
        `${name}, ${cniVersion}: addresses, default route, gateway address, and pings both ways`,
        inNamespaces(['node', 'pod'], async ({ node, pod }) => {
          const net = network(
            node,
            bridgeConf({ isDefaultGateway: true, cniVersion }, ...subnets.map(([subnet]) => subnet)),
          )
          const result = await net.add(pod)
          assert.deepEqual(
            await global(pod, 'eth0'),
            subnets.map(([, address]) => address),
          )
          assert.deepEqual(
            await global(node, 'br0'),
            subnets.map(([subnet, , gateway]) => gateway + subnet.slice(subnet.indexOf('/'))),
          )
          const families = [
            ...new Map(
              subnets.map(([subnet, , gateway]) => [subnet.includes(':') ? '-6' : '-4', gateway] as const).reverse(),
            ),
          ]
          for (const [family, gateway] of families)
            assert.deepEqual(
              (await pod.json(family, 'route', 'show', 'default')).map((route) => route['gateway']),
              [gateway],
            )
          for (const [, address, gateway] of subnets) {
            assert.ok(await ping(pod, gateway))
            assert.ok(await ping(node, bare(address)))
          }
          await shown(result, cniVersion, subnets, { node, pod })
          if (cniVersion >= '0.4.0') await net.check(pod, result)
          await net.del(pod)
        }),
      )
    }
  }

  it(
    'two pods of a dual-stack network reach each other, and both gateways work',
    inNamespaces(['node', 'one', 'two'], async ({ node, one, two }) => {
      const net = network(node, bridgeConf({ isDefaultGateway: true }, '10.1.0.0/24', 'fd00:1::/64'))
      const [first, second] = [await net.add(one), await net.add(two)]
      for (const { address } of second['ips']) assert.ok(await ping(one, bare(address)), address)
      for (const { address } of first['ips']) assert.ok(await ping(two, bare(address)), address)
    }),
  )

  it(
    'a bridge with another IPv4 address is an error that names it and leaves nothing over; forceAddress replaces it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await holds(node, '10.9.0.1/24')
      const net = network(node, bridgeConf({ isGateway: true }))
      await refused(
        net,
        { node, pod },
        {
          msg: '"br0" already has an IP address different from 10.1.0.1/24',
          details: 'it has 10.9.0.1/24; set "forceAddress" to replace it, or another "bridge"',
        },
      )
      const result = await net.add(pod, { conf: { ...net.conf, forceAddress: true } })
      assert.deepEqual(await global(node, 'br0'), ['10.1.0.1/24'])
      assert.ok(await ping(node, bare(result['ips'][0].address)))
    }),
  )

  it(
    'of IPv6 addresses one of another subnet stays, one of an overlapping subnet is as with IPv4',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await holds(node, 'fd00:9::1/64')
      const net = network(node, bridgeConf({ isGateway: true }, 'fd00:1::/64'))
      await net.add(pod)
      assert.deepEqual((await global(node, 'br0')).sort(), ['fd00:1::1/64', 'fd00:9::1/64'])
      await net.del(pod)
      await node.ip('addr', 'del', 'fd00:1::1/64', 'dev', 'br0')
      await node.ip('addr', 'add', 'fd00:1::1/48', 'dev', 'br0', 'nodad')
      await refused(
        net,
        { node, pod },
        {
          msg: '"br0" already has an IP address different from fd00:1::1/64',
          details: 'it has fd00:1::1/48; set "forceAddress" to replace it, or another "bridge"',
        },
      )
      await net.add(pod, { conf: { ...net.conf, forceAddress: true } })
      assert.deepEqual((await global(node, 'br0')).sort(), ['fd00:1::1/64', 'fd00:9::1/64'])
    }),
  )

  it(
    'IPv6 works the moment ADD returns, which does not wait for duplicate address detection',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ isDefaultGateway: true }, 'fd00:1::/64'))
      await net.add(pod)
      await worksAtOnce(node, pod, ['dev', 'br0'])
    }),
  )

  it(
    'with enabledad a free address is used, a taken one is an error naming it that leaves nothing',
    inNamespaces(['node', 'pod', 'squatter'], async ({ node, pod, squatter }) => {
      const net = network(node, bridgeConf({ isGateway: true, enabledad: true }, 'fd00:1::/64'))
      const result = await net.add(pod)
      assert.deepEqual(
        result['ips'].map((ip: Row) => ip['address']),
        ['fd00:1::2/64'],
      )
      assert.equal(
        (
          await pod.exec([
            'cat',
            '/proc/sys/net/ipv6/conf/eth0/accept_dad',
            '/proc/sys/net/ipv6/conf/eth0/enhanced_dad',
          ])
        ).stdout,
        '1\n1\n',
      )
      assert.ok(await ping(node, 'fd00:1::2'))
      await net.del(pod)
      await node.ip(
        'link',
        'add',
        'p0',
        'up',
        'master',
        'br0',
        'type',
        'veth',
        'peer',
        'name',
        'p0',
        'netns',
        squatter.path,
      )
      await squatter.ip('link', 'set', 'p0', 'up')
      await squatter.ip('addr', 'add', 'fd00:1::3/64', 'dev', 'p0', 'nodad')
      const error = await net.fails('ADD', pod)
      assert.deepEqual(error, {
        ...error,
        code: 11,
        msg: 'Cannot use fd00:1::3/64: another host on the link has this address',
        details: 'duplicate address detection failed ("enabledad")',
      })
      assert.deepEqual([await pod.json('link', 'show', 'type', 'veth'), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    "dns is the pool's, unless the configuration names anything, even an empty list",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const resolvConf = `${mkdtempSync('/run/resolv-')}/resolv.conf`
      writeFileSync(resolvConf, 'nameserver 10.1.0.53\nsearch a.example b.example\n')
      const { ipam, ...rest } = bridgeConf()
      const net = network(node, { ...rest, ipam: { ...ipam, resolvConf } })
      const pooled = { nameservers: ['10.1.0.53'], search: ['a.example', 'b.example'] }
      for (const [dns, want] of [
        [undefined, pooled],
        [{}, pooled],
        [{ nameservers: ['192.0.2.53'] }, { nameservers: ['192.0.2.53'] }],
        [{ domain: 'c.example' }, { domain: 'c.example' }],
        [{ options: [] }, undefined],
      ] as const) {
        assert.deepEqual((await net.add(pod, { conf: { ...net.conf, dns } }))['dns'], want)
        await net.del(pod)
      }
    }),
  )

  it(
    "a route's mtu, advmss, priority, table and scope are programmed, two gateways of one destination are multipath, and CHECK passes",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const routes = [
        { dst: '10.8.0.0/16', mtu: 1400, advmss: 1300, priority: 77 },
        { dst: '10.7.0.0/16', table: 100 },
        { dst: '10.6.0.0/16', scope: 200 },
        { dst: '10.5.0.0/16', gw: '10.1.0.1' },
        { dst: '10.5.0.0/16', gw: '10.1.0.254' },
        { dst: 'fd08::/32', gw: 'fd00:1::fe', mtu: 1380, priority: 5 },
      ]
      const { ipam, ...rest } = bridgeConf({ isGateway: true }, '10.1.0.0/24', 'fd00:1::/64')
      const net = network(node, { ...rest, ipam: { ...ipam, routes } })
      const result = await net.add(pod)
      assert.deepEqual(result['routes'], routes)
      const seen = Object.fromEntries(
        [...(await pod.json('route', 'show', 'table', 'all')), ...(await pod.json('-6', 'route', 'show'))].map(
          (one) => [one['dst'], one],
        ),
      )
      const { metrics, metric, gateway } = seen['10.8.0.0/16'] ?? {}
      assert.deepEqual(
        { metrics, metric, gateway },
        { metrics: [{ mtu: 1400, advmss: 1300 }], metric: 77, gateway: '10.1.0.1' },
      )
      assert.equal(seen['10.7.0.0/16']?.['table'], '100')
      assert.equal(seen['10.6.0.0/16']?.['scope'], 'site')
      assert.deepEqual(
        seen['10.5.0.0/16']?.['nexthops'].map((hop: Row) => hop['gateway']),
        ['10.1.0.1', '10.1.0.254'],
      )
      assert.deepEqual(
        [seen['fd08::/32']?.['gateway'], seen['fd08::/32']?.['metric'], seen['fd08::/32']?.['metrics']],
        ['fd00:1::fe', 5, [{ mtu: 1380 }]],
      )
      await net.check(pod, result)
    }),
  )

  it(
    "the container's end: IPv6 is on where it was off, neighbours are told, and its addresses survive the link going down and up",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await pod.exec([
        'sh',
        '-c',
        'for one in all default lo; do echo 1 >/proc/sys/net/ipv6/conf/$one/disable_ipv6; done',
      ])
      await network(node, bridgeConf({ isGateway: true }, '10.1.0.0/24', 'fd00:1::/64')).add(pod)
      const files = [
        'ipv6/conf/lo/disable_ipv6',
        'ipv6/conf/eth0/disable_ipv6',
        'ipv6/conf/eth0/keep_addr_on_down',
        'ipv4/conf/eth0/arp_notify',
      ].map((file) => `/proc/sys/net/${file}`)
      assert.equal((await pod.exec(['cat', ...files])).stdout, '0\n0\n1\n1\n')
      await pod.ip('link', 'set', 'eth0', 'down')
      await pod.ip('link', 'set', 'eth0', 'up')
      assert.deepEqual(await global(pod, 'eth0'), ['10.1.0.2/24', 'fd00:1::2/64'])
      assert.ok(await ping(node, '10.1.0.2'))
    }),
  )
})

/**
 * The result says what the kernel has: `[bridge, host, container]`, addresses on the third, or the two families of
 * 0.2.0.
 */
async function shown(
  result: Row,
  version: string,
  subnets: (typeof CASES)[keyof typeof CASES],
  { node, pod }: Record<'node' | 'pod', Namespace>,
): Promise<void> {
  if (version < '0.3.0')
    return assert.deepEqual(
      [result['ip4'], result['ip6']].flatMap((ip) => (ip ? [[ip.ip, ip.gateway]] : [])),
      subnets.map(([, address, gateway]) => [address, gateway]),
    )
  const mac = async (ns: Namespace, ...of: string[]) => (await ns.json('link', 'show', ...of))[0] as Row
  const port = await mac(node, 'master', 'br0')
  const interfaces = result['interfaces'].map(({ mtu: _, ...rest }: Row) => rest)
  assert.deepEqual(interfaces, [
    { name: 'br0', mac: (await mac(node, 'dev', 'br0'))['address'] },
    { name: port['ifname'], mac: port['address'] },
    { name: 'eth0', mac: (await mac(pod, 'dev', 'eth0'))['address'], sandbox: pod.path },
  ])
  assert.deepEqual(
    result['ips'].map((ip: Row) => [ip['interface'], ip['address'], ip['gateway']]),
    subnets.map(([, address, gateway]) => [2, address, gateway]),
  )
}

async function refused(
  net: ReturnType<typeof network>,
  { node, pod }: Record<'node' | 'pod', Namespace>,
  want: { msg: string; details: string },
): Promise<void> {
  const before = await settled(() => snapshot(node))
  const { code, msg, details } = await net.fails('ADD', pod)
  assert.deepEqual({ code, msg, details }, { code: 7, ...want })
  await until(async () => assert.equal(await snapshot(node), before) === undefined)
  assert.deepEqual([await pod.json('link', 'show', 'type', 'veth'), traces(pod, net.conf)], [[], []])
}

async function holds(node: Namespace, address: string): Promise<void> {
  // What an ADD sets on the node for all networks is set before, so that a refused one can be compared.
  await node.exec([
    'sh',
    '-c',
    'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo 0 >/proc/sys/net/ipv6/conf/default/accept_ra',
  ])
  // A port of its own, so that its carrier does not come and go with the pods.
  await node.ip('link', 'add', 'br0', 'address', '02:00:00:00:00:99', 'type', 'bridge')
  await node.ip('link', 'set', 'br0', 'up')
  await node.ip('link', 'add', 'p0', 'up', 'master', 'br0', 'type', 'veth', 'peer', 'name', 'p1')
  await node.ip('link', 'set', 'p1', 'up')
  await node.ip('addr', 'add', address, 'dev', 'br0')
}

async function global(ns: Namespace, dev: string): Promise<string[]> {
  const [link] = await ns.json('addr', 'show', 'dev', dev)
  return link?.['addr_info']
    .filter(({ scope }: Row) => scope === 'global')
    .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`)
}

function bare(cidr: string): string {
  return cidr.slice(0, cidr.indexOf('/'))
}
