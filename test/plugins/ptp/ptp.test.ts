// lane: netns
// Tests plugins/ptp.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { inNamespaces, type Namespace, ping, type Row } from '../../support/harness.ts'
import { answersBothWays, bridgeConf, type Conf, network, traces, worksAtOnce } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']
const DUAL = ['10.1.0.0/24', 'fd00:1::/64']
const DEFAULTS = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }]

testPlugin({
  type: 'ptp',
  conf: () => ptpConf({ ipMasq: true }),
  refused: (conf) => ({ ...conf, mtu: -1 }),
  again: 'refused',
  works: (pod, result, node) => answersBothWays(node, pod, result, ['10.1.0.1', 'fd00:1::1']),
})

describe('ptp', () => {
  for (const cniVersion of VERSIONS) {
    it(
      `v4 and routes, ${cniVersion}: the gateway alone is on the link, the subnet is behind it, the node has its address and a route back, and forwards`,
      inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
        const net = network(node, ptpConf({ cniVersion }, '10.1.0.0/24'))
        const [result] = [await net.add(pod), await net.add(peer)]
        if (cniVersion >= '0.3.0') await shows(result, node, pod, [['10.1.0.2/24', '10.1.0.1']])
        else assert.deepEqual(result['ip4'], { ip: '10.1.0.2/24', gateway: '10.1.0.1', routes: [{ dst: '0.0.0.0/0' }] })
        const [host] = await node.json('addr', 'show', 'type', 'veth')
        assert.deepEqual(addresses(host), ['10.1.0.1/32'])
        assert.deepEqual(await routes(node, '-4'), [`10.1.0.2 scope host`, '10.1.0.3 scope host'])
        assert.deepEqual(await routes(pod, '-4'), [
          '10.1.0.0/24 via 10.1.0.1 src 10.1.0.2',
          '10.1.0.1 src 10.1.0.2 scope link',
          'default via 10.1.0.1',
        ])
        // What the kernel keeps of IPv6 for a link it walks through whenever any link changes.
        assert.equal((await node.exec(['sh', '-c', 'ip -6 route show table all | grep veth; true'])).stdout, '')
        assert.equal((await node.exec(['cat', '/proc/sys/net/ipv4/ip_forward'])).stdout, '1\n')
        assert.ok(
          (await ping(node, '10.1.0.2')) &&
            (await ping(pod, '10.1.0.1')) &&
            (await ping(pod, '10.1.0.3')) &&
            (await ping(peer, '10.1.0.2')),
        )
        if (cniVersion >= '0.4.0') await net.check(pod, result)
        await net.del(pod)
        assert.deepEqual(await routes(node, '-4'), ['10.1.0.3 scope host'])
      }),
    )
  }

  it(
    'dual stack and routes: the same for both families, mtu at both ends, and two pods reach each other through the node',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      const net = network(
        node,
        withIpam(ptpConf({ mtu: 1400 }), {
          routes: [
            ...DEFAULTS,
            { dst: '10.9.0.0/16', gw: '10.1.0.77' },
            { dst: 'fd09::/16', gw: 'fd00:1::77' },
            { dst: '10.8.0.0/16', mtu: 1300, priority: 7 },
          ],
        }),
      )
      const [result] = [await net.add(pod), await net.add(peer)]
      await shows(result, node, pod, [
        ['10.1.0.2/24', '10.1.0.1'],
        ['fd00:1::2/64', 'fd00:1::1'],
      ])
      assert.deepEqual(await routes(pod, '-6'), [
        'default via fd00:1::1',
        'fd00:1::/64 via fd00:1::1 src fd00:1::2',
        'fd00:1::1 src fd00:1::2',
        'fd09::/16 via fd00:1::77',
      ])
      assert.deepEqual(await routes(pod, '-4'), [
        '10.1.0.0/24 via 10.1.0.1 src 10.1.0.2',
        '10.1.0.1 src 10.1.0.2 scope link',
        '10.8.0.0/16 via 10.1.0.1 mtu 1300',
        '10.9.0.0/16 via 10.1.0.77',
        'default via 10.1.0.1',
      ])
      assert.deepEqual(await routes(node, '-6'), ['fd00:1::1', 'fd00:1::1', 'fd00:1::2', 'fd00:1::3'])
      assert.equal((await node.exec(['cat', '/proc/sys/net/ipv6/conf/all/forwarding'])).stdout, '1\n')
      for (const address of ['10.1.0.3', 'fd00:1::3']) assert.ok(await ping(pod, address), address)
      const links = [
        ...(await node.json('link', 'show', 'type', 'veth')),
        ...(await pod.json('link', 'show', 'dev', 'eth0')),
      ]
      assert.deepEqual(
        links.map(({ mtu }) => mtu),
        [1400, 1400, 1400],
      )
      await net.check(pod, result)
      await net.check(peer, await Promise.resolve(result)).then(
        () => assert.fail('the result of one pod is not that of another'),
        () => {},
      )
    }),
  )

  it(
    "dns is the pool's, unless the configuration names anything, even an empty list",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const resolvConf = `${mkdtempSync('/run/resolv-')}/resolv.conf`
      writeFileSync(resolvConf, 'nameserver 10.1.0.53\nsearch a.example b.example\n')
      const net = network(node, withIpam(ptpConf(), { resolvConf }))
      const pooled = { nameservers: ['10.1.0.53'], search: ['a.example', 'b.example'] }
      for (const [dns, want] of [
        [undefined, pooled],
        [{}, pooled],
        [{ nameservers: ['192.0.2.53'] }, { nameservers: ['192.0.2.53'] }],
        [{ options: [] }, undefined],
      ] as const) {
        assert.deepEqual((await net.add(pod, { conf: { ...net.conf, dns } }))['dns'], want)
        await net.del(pod)
      }
    }),
  )

  it(
    'DEL of what was never added, and DEL twice, succeed, whether the namespace is there or not',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, ptpConf())
      for (const netns of [pod, '', '/run/netns/gone', null]) {
        await net.del(pod, { netns })
        await net.add(pod)
        for (const _ of [1, 2]) await net.del(pod, { netns })
        assert.deepEqual(
          [traces(pod, net.conf), await node.json('link', 'show', 'type', 'veth'), await routes(node, '-4')],
          [[], [], []],
        )
      }
    }),
  )

  it(
    'IPv6 works the moment ADD returns, which does not wait for duplicate address detection',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, ptpConf({}, 'fd00:1::/64'))
      await net.add(pod)
      await worksAtOnce(node, pod, ['type', 'veth'])
    }),
  )

  it(
    'two links of one subnet in one namespace: both answer, CHECK passes for both, and each goes on when the other goes',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      const net = network(node, ptpConf())
      const first = await net.add(pod)
      const second = await net.add(pod, { ifname: 'net1' })
      await net.add(peer)
      await net.check(pod, first)
      await net.check(pod, second, { ifname: 'net1' })
      for (const address of ['10.1.0.2', '10.1.0.3', 'fd00:1::2', 'fd00:1::3'])
        for (const from of [node, peer]) assert.ok(await ping(from, address), `${from.name} to ${address}`)
      for (const address of ['10.1.0.1', '10.1.0.4', 'fd00:1::1', 'fd00:1::4'])
        assert.ok(await ping(pod, address), address)
      await net.del(pod)
      await net.check(pod, second, { ifname: 'net1' })
      for (const address of ['10.1.0.3', 'fd00:1::3']) assert.ok(await ping(peer, address), address)
      for (const address of ['10.1.0.4', 'fd00:1::4']) assert.ok(await ping(pod, address), address)
      const again = await net.add(pod)
      await net.del(pod, { ifname: 'net1' })
      await net.check(pod, again)
      for (const { address } of again['ips']) assert.ok(await ping(peer, bare(address)), address)
    }),
  )

  it(
    'without ipam: a pair of links, both up, without addresses, and CHECK passes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      for (const ipam of [undefined, {}, { type: '' }]) {
        const net = network(node, ptpConf({ ipam }))
        const result = await net.add(pod)
        assert.deepEqual(Object.keys(result), ['cniVersion', 'interfaces'])
        const [host, eth0] = [
          (await node.json('addr', 'show', 'type', 'veth'))[0] as Row,
          (await pod.json('addr', 'show', 'dev', 'eth0'))[0] as Row,
        ]
        assert.deepEqual([result['interfaces'][0].name, result['interfaces'][1].sandbox], [host['ifname'], pod.path])
        for (const link of [host, eth0]) assert.deepEqual([link['flags'].includes('UP'), addresses(link)], [true, []])
        await net.check(pod, result)
        await net.del(pod)
      }
    }),
  )
})

/** A configuration of `ptp` in these subnets, dual-stack when none is named, with default routes for them. */
function ptpConf(keys: object = {}, ...subnets: readonly string[]): Conf {
  const all = subnets.length > 0 ? subnets : DUAL
  const conf = bridgeConf({ type: 'ptp', bridge: undefined }, ...all)
  return {
    ...withIpam(conf, {
      routes: DEFAULTS.filter(({ dst }) => all.some((subnet) => subnet.includes(':') === dst.includes(':'))),
    }),
    ...keys,
  }
}

function withIpam(conf: Conf, keys: object): Conf {
  return { ...conf, ipam: { ...conf.ipam, ...keys } }
}

/** The result says what the kernel has: `[host, container]`, addresses on the second. */
async function shows(
  result: Row,
  node: Namespace,
  pod: Namespace,
  ips: readonly (readonly [string, string])[],
): Promise<void> {
  const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
  const host = (await node.json('link', 'show', 'type', 'veth')).find(
    ({ ifname }) => ifname === result['interfaces'][0].name,
  )
  assert.deepEqual(
    result['interfaces'].map(({ mtu: _, ...rest }: Row) => rest),
    [
      { name: host?.['ifname'], mac: host?.['address'] },
      { name: 'eth0', mac: eth0?.['address'], sandbox: pod.path },
    ],
  )
  assert.deepEqual(
    result['ips'].map((ip: Row) => [ip['interface'], ip['address'], ip['gateway']]),
    ips.map(([address, gateway]) => [1, address, gateway]),
  )
  assert.deepEqual(
    addresses(eth0),
    ips.map(([address]) => address),
  )
}

/** The main table, a line per route, sorted, without link-local ones and without the link. */
async function routes(ns: Namespace, family: '-4' | '-6'): Promise<string[]> {
  const shown = ({ dst, gateway, prefsrc, scope, metrics }: Row) =>
    [
      dst,
      gateway && `via ${gateway}`,
      prefsrc && `src ${prefsrc}`,
      scope !== 'global' && `scope ${scope}`,
      metrics?.[0].mtu && `mtu ${metrics[0].mtu}`,
    ]
      .filter(Boolean)
      .join(' ')
  return (await ns.json(family, 'route', 'show'))
    .filter(({ dst }) => !dst.startsWith('fe80'))
    .map(shown)
    .sort()
}

function addresses(link: Row | undefined): string[] {
  return link?.['addr_info']
    .filter(({ scope }: Row) => scope === 'global')
    .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`)
}

function bare(cidr: string): string {
  return cidr.slice(0, cidr.indexOf('/'))
}
