// lane: netns
// Tests plugins/macvlan.ts.
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { type Namespace, ping, plugin, type Row, snapshot, until } from '../../support/harness.ts'
import { aliasOf, lanConf, linksOf, onLan, ROUTER, wireLan } from '../../support/lan.ts'
import { type Conf, network, traces } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

testPlugin({
  type: 'macvlan',
  prepare: wireLan,
  conf: () => macvlan(),
  refused: (conf) => ({ ...conf, mtu: 1451 }),
  again: 'refused',
  async works(pod, result, node) {
    const addresses: string[] = (result['ips'] ?? [result['ip4'], result['ip6']]).map(
      (ip: Row) => (ip['address'] ?? ip['ip']).split('/')[0],
    )
    assert.equal(addresses.length, 2)
    for (const address of addresses) await until(() => ping(node, address))
    for (const router of Object.values(ROUTER)) await until(() => ping(pod, router))
  },
})

describe('macvlan', () => {
  it(
    'the link is made although the node has one of the same name; it is up, marked with its owner, and the node has no other link than before',
    onLan(['pod'], async ({ node, pod }) => {
      await node.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth9')
      const before = (await node.json('link')).map(({ ifname }) => ifname)
      const net = network(node, macvlan())
      const result = await net.add(pod)
      const [link, ...others] = await linksOf(pod)
      assert.deepEqual(others, [])
      assert.deepEqual(
        [
          link?.['ifname'],
          link?.['linkinfo'].info_kind,
          link?.['linkinfo'].info_data.mode,
          link?.['flags'].includes('UP'),
          link?.['ifalias'],
        ],
        ['eth0', 'macvlan', 'bridge', true, aliasOf(pod, net.conf)],
      )
      assert.deepEqual(result['interfaces'], [{ name: 'eth0', mac: link?.['address'], mtu: 1450, sandbox: pod.path }])
      assert.deepEqual(
        (await node.json('link')).map(({ ifname }) => ifname),
        before,
      )
      await net.del(pod)
    }),
  )

  it(
    'with addresses: both families, routes, pods reach each other and the router; CHECK finds what is missing or changed, and nothing else',
    onLan(['pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, macvlan({ mtu: 1400 }))
      const result = await net.add(pod)
      await net.add(other)
      assert.deepEqual(
        result['ips'].map(({ interface: index, address, gateway }: Row) => [index, address, gateway]),
        [
          [0, '10.1.0.2/24', ROUTER.four],
          [0, 'fd00:1::2/64', ROUTER.six],
        ],
      )
      for (const address of ['10.1.0.3', 'fd00:1::3', ROUTER.four, ROUTER.six])
        assert.ok(await ping(pod, address), address)
      await net.check(pod, result)
      // Another spelling of the same namespace, a route of somebody else's, and a MAC that tuning changed and put into
      // the result.
      await pod.ip('route', 'add', '10.99.0.0/16', 'dev', 'eth0')
      await pod.ip('link', 'set', 'dev', 'eth0', 'address', '02:00:00:00:00:77')
      await net.check(pod, {
        ...result,
        interfaces: [
          { ...result['interfaces'][0], mac: '02:00:00:00:00:77', sandbox: pod.path.replace('/run', '/var/run') },
        ],
      })
      for (const [argv, want] of [
        ['link set dev eth0 mtu 1300', /mtu 1300, want 1400/],
        ['link set dev eth0 type macvlan mode private', /like\.mode private, want bridge/],
        ['route delete default', /route 0\.0\.0\.0\/0 in the pod is missing/],
        ['addr delete fd00:1::2/64 dev eth0', /address fd00:1::2\/64 on eth0 in the pod is missing/],
        ['link set dev eth0 down', /up off, want true/],
        ['link delete dev eth0', /link eth0 in the pod is missing/],
      ] as const) {
        await pod.ip(...argv.split(' '))
        const { msg, details } = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
        assert.match(`${msg} ${details}`, want)
      }
      for (const one of [pod, other]) await net.del(one)
    }),
  )

  it(
    'without ipam: a link that is up and has no address, and CHECK passes',
    onLan(['pod'], async ({ node, pod }) => {
      for (const ipam of [undefined, {}, { type: '' }]) {
        const net = network(node, macvlan({ ipam }))
        const result = await net.add(pod)
        assert.deepEqual(Object.keys(result), ['cniVersion', 'interfaces'])
        const [link] = await linksOf(pod)
        assert.deepEqual(
          [link?.['flags'].includes('UP'), link?.['addr_info'].filter(({ scope }: Row) => scope === 'global')],
          [true, []],
        )
        await net.check(pod, result)
        await net.del(pod)
      }
      const { code } = await network(node, macvlan({ ipam: {}, cniVersion: '0.2.0' })).fails('ADD', pod)
      assert.deepEqual([code, await linksOf(pod)], [7, []])
    }),
  )

  it(
    'without a master the link of the default route is it, of IPv4 before IPv6, the one of the lowest metric; without one ADD and STATUS say so',
    onLan(['pod'], async ({ node, pod }) => {
      await node.exec([
        'sh',
        '-ec',
        'for i in 2 3; do ip link add eth$i type veth peer name lan$i; ip link set eth$i up; ip link set lan$i up; done',
      ])
      const net = network(node, macvlan({ master: '' }))
      assert.deepEqual((await net.fails('ADD', pod)).msg, 'Cannot choose a master: no default route on the node')
      assert.deepEqual((await net.fails('STATUS', pod)).code, 50)
      const master = async () => {
        const { status } = await plugin(
          'macvlan',
          { command: 'STATUS', conf: net.conf, containerId: null, ifname: null },
          node,
        )
        assert.equal(status, 0)
        await net.add(pod)
        const [link] = await linksOf(pod)
        await net.del(pod)
        return (await node.json('link')).find(({ ifindex }) => ifindex === link?.['link_index'])?.['ifname']
      }
      await node.ip('-6', 'route', 'add', 'default', 'dev', 'eth2', 'metric', '50')
      assert.equal(await master(), 'eth2')
      await node.ip('route', 'add', 'unreachable', 'default', 'metric', '1')
      await node.ip('route', 'add', 'default', 'dev', 'eth3', 'metric', '20')
      await node.ip('route', 'add', 'default', 'dev', 'eth1', 'metric', '10')
      assert.equal(await master(), 'eth1')
      await node.ip('route', 'delete', 'default', 'dev', 'eth1')
      assert.equal(await master(), 'eth3')
    }),
  )

  it(
    "the MAC is the runtime's before that of CNI_ARGS before the configuration's, and without any the same for the same attachment",
    onLan(['pod'], async ({ node, pod }) => {
      const [one, two, three] = ['02:00:00:00:00:01', '02:00:00:00:00:02', '02:00:00:00:00:03']
      const net = network(node, macvlan({ mac: one.toUpperCase() }))
      const seen = async (keys: object, args?: string) => {
        const result = await net.add(pod, { conf: { ...net.conf, ...keys }, ...(args === undefined ? {} : { args }) })
        const [link] = await linksOf(pod)
        assert.equal(result['interfaces'][0].mac, link?.['address'])
        await net.check(pod, result, { conf: { ...net.conf, ...keys, prevResult: result } })
        await net.del(pod)
        return link?.['address']
      }
      assert.equal(await seen({}), one)
      assert.equal(await seen({}, `IgnoreUnknown=1;K8S_POD_NAME=x;MAC=${two}`), two)
      assert.equal(await seen({ runtimeConfig: { mac: three } }, `MAC=${two}`), three)
      assert.equal(await seen({ mac: '', runtimeConfig: { mac: '' } }), await seen({ mac: undefined }))
      assert.equal((await net.fails('ADD', pod, { args: 'MAC=33:33:00:00:00:01' })).code, 4)
    }),
  )

  it(
    "an mtu above the master's or below zero, an unknown mode and an unknown master are refused with what would be right, and change nothing",
    onLan(['pod'], async ({ node, pod }) => {
      const before = [await snapshot(node), await snapshot(pod)]
      const net = network(node, macvlan())
      for (const [keys, want] of [
        [{ mtu: 1451 }, /^Cannot use mtu 1451: want 0 to 1450, the mtu of its master eth1$/],
        [{ mtu: -1 }, /^Cannot read mtu -1: want a whole number, 0 to 65535$/],
        [{ mode: 'tunnel' }, /^Cannot read mode "tunnel": want one of bridge, private, vepa, passthru$/],
        [{ bcqueuelen: -1 }, /^Cannot read bcqueuelen -1: want a whole number/],
        [{ master: 'eth7' }, /^Cannot find the master "eth7" on the node: there is no such link$/],
        [{ master: 'lo' }, /^Cannot use the master "lo" on the node: it is no Ethernet link$/],
        [{ master: 'no/link' }, /^Cannot read master "no\/link": want an interface name/],
      ] as const) {
        const { code, msg } = await net.fails('ADD', pod, { conf: { ...net.conf, ...keys } })
        assert.match(msg, want)
        assert.equal(code, 7, msg)
      }
      assert.deepEqual([await snapshot(node), await snapshot(pod)], before)
      assert.deepEqual(traces(pod, net.conf), [])
      const { code, msg } = await net.fails('STATUS', pod, { conf: { ...net.conf, master: 'eth7' } })
      assert.deepEqual([code, msg], [50, 'Cannot find the master "eth7" on the node: there is no such link'])
    }),
  )

  it(
    'the four modes and bcqueuelen, which CHECK knows; a link that has its master for itself has its MAC, or gives it the one that is asked for',
    onLan(['pod'], async ({ node, pod }) => {
      for (const mode of ['', 'bridge', 'private', 'vepa', 'passthru']) {
        const net = network(node, macvlan({ mode, bcqueuelen: 2000 }))
        const result = await net.add(pod)
        const [link] = await linksOf(pod)
        assert.deepEqual(
          [link?.['linkinfo'].info_data.mode, link?.['linkinfo'].info_data.bcqueuelen, link?.['address']],
          [mode || 'bridge', 2000, result['interfaces'][0].mac],
        )
        assert.equal(link?.['address'] === (await macOf(node)), mode === 'passthru')
        await net.check(pod, result)
        assert.match(
          (
            await net.fails('CHECK', pod, {
              conf: { ...net.conf, mode: mode === 'vepa' ? 'private' : 'vepa', prevResult: result },
            })
          ).msg,
          /like\.mode/,
        )
        await net.del(pod)
      }
      const own = await macOf(node)
      const net = network(node, macvlan({ mode: 'passthru', mac: '02:00:00:00:00:09' }))
      const result = await net.add(pod)
      assert.deepEqual(
        [result['interfaces'][0].mac, (await linksOf(pod))[0]?.['address'], await macOf(node)],
        Array(3).fill('02:00:00:00:00:09'),
      )
      await net.check(pod, result)
      await net.del(pod)
      assert.equal(await macOf(node), own)
    }),
  )

  it(
    'neighbours that knew the address of another learn of the new one by ADD alone, for both families, and IPv6 works at once',
    onLan(['pod'], async ({ node, pod }) => {
      for (const address of ['10.1.0.2', 'fd00:1::2'])
        await node.ip('neigh', 'replace', address, 'lladdr', '02:00:00:00:00:99', 'dev', 'lan0', 'nud', 'stale')
      const net = network(node, macvlan())
      const result = await net.add(pod)
      const [{ addr_info: seen }] = (await pod.json('addr', 'show', 'dev', 'eth0')) as [Row]
      assert.deepEqual(
        seen.filter(({ scope }: Row) => scope === 'global').map((one: Row) => [one['local'], one['tentative']]),
        [
          ['10.1.0.2', undefined],
          ['fd00:1::2', undefined],
        ],
      )
      assert.ok(await ping(pod, ROUTER.six))
      await until(
        async () =>
          (await node.json('neigh', 'show', 'dev', 'lan0')).filter(
            ({ lladdr }) => lladdr === result['interfaces'][0].mac,
          ).length >= 2,
      )
      await net.del(pod)
    }),
  )

  it(
    'a pod with IPv4 alone keeps the duplicate address detection of the kernel for its link-local address; one with IPv6 has none',
    onLan(['pod', 'other'], async ({ node, pod, other }) => {
      const setting = async (ns: Namespace, name: string) =>
        (await ns.exec(['cat', `/proc/sys/net/ipv6/conf/${name}/accept_dad`])).stdout.trim()
      const four = network(
        node,
        macvlan({
          ipam: { type: 'host-local', dataDir: mkdtempSync('/run/ipam-'), ranges: [[{ subnet: '10.1.0.0/24' }]] },
        }),
      )
      const both = network(node, macvlan())
      await four.add(pod)
      await both.add(other)
      assert.deepEqual([await setting(pod, 'eth0'), await setting(other, 'eth0')], [await setting(pod, 'default'), '0'])
      assert.notEqual(await setting(pod, 'default'), '0')
      await four.del(pod)
      await both.del(other)
    }),
  )
})

function macvlan(keys: object = {}): Conf {
  return lanConf('macvlan', { master: 'eth1', ...keys })
}

async function macOf(node: Namespace): Promise<string> {
  return (await node.json('link', 'show', 'dev', 'eth1'))[0]?.['address']
}
