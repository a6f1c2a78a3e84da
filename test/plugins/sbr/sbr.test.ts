// lane: long
// Tests plugins/sbr.ts.
import assert from 'node:assert/strict'
import { existsSync, rmSync } from 'node:fs'
import { execa } from 'execa'
import { chain, good } from '../../support/chained.ts'
import { chainedNetwork } from '../../support/chained-network.ts'
import { type Finished, inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { watched } from '../../support/host-ports.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

testPlugin({
  type: 'sbr',
  conf: () => ({ cniVersion: '1.1.0', name: bridgeConf().name, type: 'sbr' }),
  refused: (conf) => ({ ...conf, gateways: ['10.1.0.1', '10.1.0.7'] }),
  again: 'same',
  network: chainedNetwork,
  async works(pod, _, node) {
    assert.equal((await rules(pod)).length, 2)
    for (const address of await addressesOf(pod)) {
      assert.ok(await until(() => ping(node, address)), address)
      assert.equal(
        (
          await pod.exec([
            'ping',
            '-n',
            '-c',
            '1',
            '-w',
            '1',
            '-I',
            address,
            address.includes(':') ? 'fd00:1::1' : '10.1.0.1',
          ])
        ).status,
        0,
        address,
      )
    }
  },
})

const FOUR = ['10.1.0.0/24']

describe('sbr: ADD', () => {
  const cases: Record<
    string,
    {
      readonly keys?: object
      readonly bridge?: object
      readonly subnets: readonly string[]
      readonly rules: readonly string[]
      readonly tables: Readonly<Record<string, readonly string[]>>
    }
  > = {
    'one address': {
      subnets: FOUR,
      bridge: { isDefaultGateway: false, isGateway: true },
      rules: ['10.1.0.2 100'],
      tables: { 100: ['10.1.0.0/24 scope link src 10.1.0.2', 'default via 10.1.0.1'], main: [] },
    },
    'a default route and others, with what they say': {
      subnets: FOUR,
      bridge: {
        isDefaultGateway: true,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: '10.1.0.0/24' }]],
          routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.7', mtu: 1400, priority: 7 }],
        },
      },
      rules: ['10.1.0.2 100'],
      tables: {
        100: [
          '10.1.0.0/24 scope link src 10.1.0.2',
          '10.9.0.0/16 via 10.1.0.7 metric 7 mtu 1400',
          'default via 10.1.0.1',
        ],
        main: [],
      },
    },
    'several addresses, of both families': {
      subnets: ['10.1.0.0/24', '10.2.0.0/24', 'fd00:1::/64'],
      rules: ['10.1.0.2 100', '10.2.0.2 101', 'fd00:1::2 102'],
      tables: {
        100: ['10.1.0.0/24 scope link src 10.1.0.2', 'default via 10.1.0.1'],
        101: ['10.2.0.0/24 scope link src 10.2.0.2', 'default via 10.2.0.1'],
        102: ['default via fd00:1::1 metric 1024', 'fd00:1::/64 metric 256', 'fe80::/64 metric 256'],
        main: [],
      },
    },
    'a table: rules alone': {
      keys: { table: 4242 },
      subnets: ['10.1.0.0/24', 'fd00:1::/64'],
      rules: ['10.1.0.2 4242', 'fd00:1::2 4242'],
      tables: {
        4242: [],
        main: [
          '10.1.0.0/24 scope link src 10.1.0.2',
          'default via 10.1.0.1',
          'default via fd00:1::1 metric 1024',
          'fd00:1::/64 metric 256',
        ],
      },
    },
    'gateways of both families, which win over those of the addresses': {
      keys: { gateways: ['10.1.0.7', 'fd00:1::7'] },
      subnets: ['10.1.0.0/24', 'fd00:1::/64'],
      rules: ['10.1.0.2 100', 'fd00:1::2 101'],
      tables: {
        100: ['10.1.0.0/24 scope link src 10.1.0.2', 'default via 10.1.0.7'],
        101: ['default via fd00:1::7 metric 1024', 'fd00:1::/64 metric 256'],
        main: [],
      },
    },
    'a gateway of IPv4': {
      keys: { gateways: ['10.1.0.7'] },
      subnets: FOUR,
      rules: ['10.1.0.2 100'],
      tables: { 100: ['10.1.0.0/24 scope link src 10.1.0.2', 'default via 10.1.0.7'] },
    },
    addSourceHints: {
      keys: { addSourceHints: true },
      subnets: ['10.1.0.0/24', 'fd00:1::/64'],
      rules: ['10.1.0.2 100', 'fd00:1::2 101'],
      tables: {
        100: ['10.1.0.0/24 scope link src 10.1.0.2', 'default via 10.1.0.1'],
        main: ['10.1.0.0/24 scope link src 10.1.0.2', 'fd00:1::/64 src fd00:1::2 metric 1024'],
      },
    },
  }
  for (const [what, { keys = {}, bridge, subnets, rules: wanted, tables }] of Object.entries(cases)) {
    it(
      `${what}: rules, tables, and what is left in the main one; ADD again changes nothing, and DEL puts all back`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chain(node, { type: 'sbr', ...keys }, { subnets, ...(bridge && { bridge }) })
        const prevResult = await net.link(pod)
        const before = await routes(pod, 'all')
        const { result } = good(await net.call('ADD', pod, { prevResult }))
        assert.deepEqual(result, prevResult)
        for (let round = 0; round < 2; round++) {
          assert.deepEqual(await rules(pod), wanted)
          for (const [table, want] of Object.entries(tables))
            assert.deepEqual(await routes(pod, table), want, `table ${table}`)
          good(await net.call('CHECK', pod, { prevResult }))
          good(await net.call('ADD', pod, { prevResult }))
        }
        good(await net.call('DEL', pod))
        assert.deepEqual(
          [await rules(pod), await routes(pod, 'all'), traces(pod, net.conf).filter((path) => path.includes('/sbr/'))],
          [[], before, []],
        )
      }),
    )
  }

  it(
    'takes the first table that has neither rules nor routes, and two ADDs in one pod at once never the same',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await pod.exec([
        'sh',
        '-ec',
        'ip link set lo up; ip rule add from 192.0.2.1 table 100; ip route add 192.0.2.0/24 dev lo table 101; ip -6 rule add from 2001:db8::1 table 103',
      ])
      const nets = [1, 2, 3, 4].map((n) => ({
        ifname: `eth${n}`,
        net: chain(node, { type: 'sbr' }, { bridge: { bridge: `br${n}` }, subnets: [`10.${n}.0.0/24`] }),
      }))
      const links = await Promise.all(nets.map(({ net, ifname }) => net.link(pod, { ifname })))
      await Promise.all(
        nets.map(async ({ net, ifname }, i) => good(await net.call('ADD', pod, { prevResult: links[i] }, { ifname }))),
      )
      const found = (await rules(pod)).filter((one) => one.startsWith('10.')).map((one) => one.split(' ')[1])
      assert.deepEqual(found.sort(), ['102', '104', '105', '106'])
    }),
  )

  it(
    'sends by the link whose address a packet has: two links to one place, each with its own way',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await pod.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter'])
      await node.exec([
        'sh',
        '-ec',
        'ip link set lo up; ip addr add 192.0.2.1/32 dev lo; echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter',
      ])
      for (const n of [1, 2])
        await chain(node, { type: 'sbr' }, { bridge: { bridge: `br${n}` }, subnets: [`10.${n}.0.0/24`] }).add(
          pod,
          {},
          { ifname: `eth${n}` },
        )
      for (const n of [1, 2]) {
        const [route] = await pod.json('route', 'get', '192.0.2.1', 'from', `10.${n}.0.2`)
        assert.deepEqual([route?.['gateway'], route?.['dev']], [`10.${n}.0.1`, `eth${n}`])
        assert.equal((await pod.exec(['ping', '-n', '-c', '1', '-w', '2', '-I', `10.${n}.0.2`, '192.0.2.1'])).status, 0)
      }
    }),
  )

  const refused: Record<string, { readonly keys: object; readonly says: RegExp }> = {
    'two gateways of a family': {
      keys: { gateways: ['fd00::1', '10.1.0.1', 'fd00::2'] },
      says: /^Cannot read gateways \["fd00::1","10\.1\.0\.1","fd00::2"\]: want at most one IPv6 address$/,
    },
    'a gateway that is none': {
      keys: { gateways: ['x'] },
      says: /^Cannot read gateways "x": want an IP address/,
    },
    '0.2.0, which knows no chain': {
      keys: { cniVersion: '0.2.0', prevResult: undefined },
      says: /^Required prevResult missing$/,
    },
    'a result without an address of the link': {
      keys: { prevResult: { ips: [{ address: '10.1.0.2/24', interface: 0 }], interfaces: [{ name: 'eth1' }] } },
      says: /^Cannot route by source: prevResult has no address of eth0$/,
    },
    'table 0': { keys: { table: 0 }, says: /^Cannot read table 0: want/ },
  }
  for (const [what, { keys, says }] of Object.entries(refused))
    it(
      `${what}: refused, and nothing is changed`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chain(node, { type: 'sbr' }, { subnets: FOUR })
        const prevResult = await net.link(pod)
        const before = [await routes(pod, 'all'), await rules(pod)]
        const { error } = await net.call('ADD', pod, { prevResult, ...keys })
        assert.match(error.msg, says)
        assert.deepEqual([error.code, await routes(pod, 'all'), await rules(pod)], [7, ...before])
      }),
    )

  it(
    'a gateway that the kernel refuses: named, and the routes are as they were',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(
        node,
        { type: 'sbr', gateways: ['192.0.2.77'] },
        { bridge: { isDefaultGateway: false, isGateway: true }, subnets: FOUR },
      )
      const prevResult = await net.link(pod)
      const before = await routes(pod, 'all')
      const { error } = await net.call('ADD', pod, { prevResult })
      assert.match(error.details, /192\.0\.2\.77/)
      assert.deepEqual([await routes(pod, 'all'), await rules(pod)], [before, []])
    }),
  )
})

describe('sbr: CHECK and DEL', () => {
  it(
    'CHECK finds a lost rule and a lost table, by name; another ADD puts it right',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'sbr' })
      const prevResult = await net.add(pod)
      for (const [broken, says] of [
        ['ip rule delete from 10.1.0.2', /^rule from 10\.1\.0\.2 to table 100 in the pod is missing$/],
        ['ip -6 rule delete from fd00:1::2', /^rule from fd00:1::2 to table 101 in the pod is missing$/],
        [
          'ip route flush table 100',
          /^route 10\.1\.0\.0\/24 in the pod is missing; route 0\.0\.0\.0\/0 in the pod is missing$/,
        ],
        ['ip -6 route delete default table 101', /^route ::\/0 in the pod is missing$/],
      ] as const) {
        assert.equal((await pod.exec(broken.split(' '))).status, 0, broken)
        assert.match((await net.call('CHECK', pod, { prevResult })).error.details, says)
        good(await net.call('ADD', pod, { prevResult }))
        good(await net.call('CHECK', pod, { prevResult }))
      }
    }),
  )

  for (const way of ['named', 'not named', 'gone'] as const)
    it(
      `DEL with the namespace ${way} removes its rules alone, makes no file, and again starts no tool`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chain(node, { type: 'sbr' })
        await net.add(pod)
        await pod.exec(['sh', '-ec', 'ip rule add from 192.0.2.1 table 77; ip rule add from 10.1.0.2 table 77'])
        if (way === 'gone') await execa('ip', ['netns', 'delete', containerId(pod)])
        const netns = way === 'not named' ? '' : pod
        good(await net.call('DEL', pod, {}, { netns }))
        if (way === 'gone') assert.equal(existsSync(pod.path), false)
        else assert.deepEqual(await rules(pod), ['10.1.0.2 77', '192.0.2.1 77'])
        const { answer, tools } = await watched(node, 'sbr', {
          command: 'DEL',
          conf: net.conf,
          containerId: containerId(pod),
          netns,
        })
        // A rule by one of its addresses may be the reference's: it is found without a tool.
        assert.deepEqual([answer.status, tools], [0, []])
        assert.equal(existsSync(pod.path), way !== 'gone')
      }),
    )

  it(
    'DEL after the link has gone removes the rules; of a pod whose rules the reference made, those',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'sbr' })
      await net.add(pod)
      await pod.ip('link', 'delete', 'eth0')
      good(await net.call('DEL', pod))
      assert.deepEqual(await rules(pod), [])
      await network(node, net.bridge).del(pod)
      const theirs = '/usr/lib/cni/sbr'
      const prevResult = await net.link(pod)
      if (existsSync(theirs)) {
        good(
          await plugin(
            'sbr',
            {
              command: 'ADD',
              conf: { ...net.conf, cniVersion: '1.0.0', prevResult: { ...prevResult, cniVersion: '1.0.0' } },
              containerId: containerId(pod),
              netns: pod,
              file: theirs,
            },
            node,
          ),
        )
        assert.equal((await rules(pod)).length, 2)
        good(await net.call('DEL', pod))
        assert.deepEqual(await rules(pod), [])
      }
    }),
  )
})

/** `FROM TABLE` of the rules by source. */
async function rules(pod: Namespace): Promise<string[]> {
  const all = [...(await pod.json('-4', 'rule')), ...(await pod.json('-6', 'rule'))]
  return all.flatMap(({ src, table }) => (src === 'all' ? [] : `${src} ${table}`)).sort()
}

/**
 * The unicast routes of a table, except those of table local; the kernel makes that of the link's own address when it
 * comes to it.
 */
async function routes(pod: Namespace, table: string): Promise<string[]> {
  const both = await Promise.all(
    ['-4', '-6'].map(async (family) => rowsOf(await pod.exec(['ip', '-j', family, 'route', 'show', 'table', table]))),
  )
  return both
    .flat()
    .filter(
      (row) => row['table'] !== 'local' && row['type'] !== 'local' && !(table !== '102' && row['dst'] === 'fe80::/64'),
    )
    .map(({ dst, gateway, scope, prefsrc, metric, metrics, table: name }) =>
      [
        dst,
        gateway && `via ${gateway}`,
        scope && `scope ${scope}`,
        prefsrc && `src ${prefsrc}`,
        metric && `metric ${metric}`,
        metrics && `mtu ${metrics[0].mtu}`,
        name && `table ${name}`,
      ]
        .filter(Boolean)
        .join(' '),
    )
    .sort()
}

// There is no such table, or nothing in it.
function rowsOf({ status, stdout }: Finished): Row[] {
  return status === 0 && stdout ? JSON.parse(stdout) : []
}

async function addressesOf(pod: Namespace): Promise<string[]> {
  const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
  return eth0?.['addr_info'].filter(({ scope }: Row) => scope === 'global').map(({ local }: Row) => local)
}
