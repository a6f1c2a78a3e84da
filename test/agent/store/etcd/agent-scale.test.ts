// lane: peers
// Tests agent, beside flanneld and etcd.
import assert from 'node:assert/strict'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { assertReach, gatewayOf, networksIn } from '../../../support/etcd-networks.ts'
import { until } from '../../../support/harness.ts'
import type { Agent } from '../../../support/nodes.ts'
import { patient } from '../../../support/patience.ts'

const PAGE = 2000

describe('plumb agent and many leases in etcd', () => {
  let etcd: Etcd
  before(async () => {
    etcd = await startEtcd()
  })
  after(() => etcd.stop())
  const network = networksIn(() => etcd)
  const { prefix, leases } = network
  /** Leases of nodes 1 to `count` of 10.200.0.0 and on, which are on a network of their own beside eth0. */
  const many = (count: number, type: string) =>
    etcd.putMany(
      Array.from({ length: count }, (_, i) => {
        const [high, low] = [(i + 1) >> 8, (i + 1) & 255]
        const mac = `02:00:00:01:${high.toString(16).padStart(2, '0')}:${low.toString(16).padStart(2, '0')}`
        return [
          `${prefix()}/subnets/10.${200 + high}.${low}.0-24`,
          JSON.stringify({
            PublicIP: `172.16.${high}.${low}`,
            BackendType: type,
            ...(type === 'vxlan' ? { BackendData: { VNI: 1, VtepMAC: mac } } : {}),
          }),
        ] as const
      }),
    )
  const counts = async (agent: Agent) =>
    Object.fromEntries(
      Object.entries((await agent.status())?.kinds ?? {}).map(([kind, { wanted, programmed }]) => [
        kind,
        wanted === programmed ? wanted : `${programmed} of ${wanted}`,
      ]),
    )

  for (const [type, count] of [
    ['vxlan', 1000],
    ['vxlan', 4000],
    ['host-gw', 4000],
  ] as const)
    it(
      `${type}, ${count} leases: all are programmed within 20 s, by one read of pages and one watch, and without a request of a lease; one more is there within 2 s`,
      network.on(1, { Network: '10.128.0.0/9', SubnetLen: 24, Backend: { Type: type } }, async ([one]) => {
        await one.ns.ip('addr', 'add', '172.16.255.254/16', 'dev', 'eth0')
        await many(count, type)
        const calls = () => Promise.all(['Range', 'Watch', 'LeaseTimeToLive'].map((method) => etcd.calls(method)))
        const before = await calls()
        const agent = one.agent()
        const all =
          type === 'vxlan'
            ? { nexthop: count, neigh: count, tunnel: count, route: count }
            : { nexthop: count, route: count }
        await until(async () => {
          const { nexthop, neigh, tunnel, route } = await counts(agent)
          return assert.deepEqual({ nexthop, ...(type === 'vxlan' ? { neigh, tunnel } : {}), route }, all) === undefined
        }, 20_000)
        await agent.ready(5000)
        const made = (await calls()).map((n, i) => n - (before[i] ?? 0))
        // The configuration, the node's record, and pages: once for the claim, and at most once for the list.
        assert.ok((made[0] ?? 99) <= 4 + 2 * Math.ceil((count + 1) / PAGE), `${made}`)
        assert.deepEqual(made.slice(1), [1, 0])
        assert.equal((await one.ns.ip('route', 'show', 'proto', '112')).trim().split('\n').length, count)
        await etcd.put(
          `${prefix()}/subnets/10.250.1.0-24`,
          JSON.stringify({
            PublicIP: '172.16.250.1',
            BackendType: type,
            ...(type === 'vxlan' ? { BackendData: { VNI: 1, VtepMAC: '02:00:00:02:00:01' } } : {}),
          }),
        )
        await until(async () => (await one.ns.ip('route', 'show', '10.250.1.0/24')) !== '', 2000)
      }),
    )

  it(
    '500 leases are removed whose entries are gone already: less than 5 s, and a node that comes with it is reached at once',
    network.on(2, { Network: '10.128.0.0/9', SubnetLen: 24, Backend: { Type: 'vxlan' } }, async ([one, two]) => {
      await many(500, 'vxlan')
      const agent = one.agent()
      await agent.ready(20_000)
      assert.equal((await counts(agent))['route'], 500)
      process.kill(agent.pid, 'SIGSTOP')
      await one.ns.ip('neigh', 'flush', 'dev', 'flannel.1', 'nud', 'permanent')
      await one.ns.ip('nexthop', 'flush', 'proto', '112')
      const fdb = (await one.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.1'])).stdout
      const drops = fdb.replace(/^(\S+) .*$/gm, 'fdb del $1 dev flannel.1 self')
      assert.equal((await one.ns.exec(['bridge', '-batch', '-'], { stdin: drops })).status, 0)
      await etcd.del(`${prefix()}/subnets/10.20`, true)
      await two.agent().ready(20_000)
      process.kill(agent.pid, 'SIGCONT')
      const started = performance.now()
      await until(async () => {
        const { neigh, tunnel, route } = await counts(agent)
        return assert.deepEqual({ neigh, tunnel, route }, { neigh: 1, tunnel: 1, route: 1 }) === undefined
      }, 5000)
      await assertReach([one, two], { v4: 1450 }, 5000)
      assert.ok(performance.now() - started < patient(5000))
      await agent.ready(1000)
      assert.deepEqual((await one.ns.ip('route', 'show', 'proto', '112')).trim().split('\n').length, 1)
    }),
  )

  it(
    'IPv6 alone: three nodes have three /64, and reach each other with packets of full size',
    network.on(
      3,
      { EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd66::/48', Backend: { Type: 'vxlan' } },
      async (_, cluster) => {
        for (const agent of cluster.nodes.map((node) => node.agent())) await agent.ready(20_000)
        const all = cluster.nodes.map((node) => gatewayOf(node))
        assert.equal(new Set(all.map(({ v6 }) => v6)).size, 3)
        assert.deepEqual(
          all.map(({ v4 }) => v4),
          [undefined, undefined, undefined],
        )
        await assertReach(cluster.nodes, { v6: 1430 })
        const keys = (await leases()).map(({ key }) => key.split('/').at(-1) ?? '')
        for (const key of keys) assert.match(key, /^0\.0\.0\.0-0&fd66:.*::-64$/)
      },
    ),
  )

  it(
    'both families: the key has an &, both are programmed, and a change of the IPv6 data alone is, too',
    network.on(
      1,
      { Network: '10.5.0.0/16', EnableIPv6: true, IPv6Network: 'fd66::/48', Backend: { Type: 'vxlan' } },
      async ([one]) => {
        const put = (last: string) =>
          etcd.put(
            `${prefix()}/subnets/10.5.9.0-24&fd66:0:0:9::-64`,
            JSON.stringify({
              PublicIP: '172.30.0.99',
              PublicIPv6: 'fd00:30::99',
              BackendType: 'vxlan',
              BackendData: { VNI: 1, VtepMAC: '02:00:00:00:00:01' },
              BackendV6Data: { VNI: 1, VtepMAC: `02:00:00:00:00:${last}` },
            }),
          )
        await put('66')
        await one.agent().ready(20_000)
        assert.match(
          (await leases()).map(({ key }) => key).join(' '),
          /subnets\/10\.5\.\d+\.0-24&fd66:0:0:[\da-f]+::-64/,
        )
        const seen = async () => {
          const [four, six] = await Promise.all(
            ['flannel.1', 'flannel-v6.1'].map((dev) => one.ns.ip('neigh', 'show', 'dev', dev, 'nud', 'permanent')),
          )
          const fdb = (await one.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel-v6.1'])).stdout
          return [four, six, fdb].map((text) => /([\da-f]{2}:){5}([\da-f]{2})/.exec(text ?? '')?.[2])
        }
        assert.deepEqual(await seen(), ['01', '66', '66'])
        await put('67')
        await until(async () => assert.deepEqual(await seen(), ['01', '67', '67']) === undefined, 2000)
        assert.equal(
          (await one.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel-v6.1'])).stdout.trim().split('\n').length,
          1,
        )
      },
    ),
  )
})
