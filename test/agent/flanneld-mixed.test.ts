// lane: peers
// Tests agent, beside flanneld and etcd.
import assert from 'node:assert/strict'
import { assertReach, gatewayOf } from '../support/etcd-networks.ts'
import { besideFlanneld } from '../support/flanneld.ts'
import { until } from '../support/harness.ts'
import { type Node, UNDERLAY } from '../support/nodes.ts'
import { sourceSeen } from '../support/packets.ts'

const DUAL = { EnableIPv6: true, IPv6Network: 'fd66::/48' }
const NETWORKS = [
  { what: 'vxlan', conf: { Network: '10.5.0.0/16', Backend: { Type: 'vxlan' } }, mtu: { v4: 1450 } },
  {
    what: 'vxlan of both families, flanneld with nftables',
    conf: { Network: '10.5.0.0/16', ...DUAL, EnableNFTables: true, Backend: { Type: 'vxlan', VNI: 7, Port: 4789 } },
    mtu: { v4: 1450, v6: 1430 },
  },
  {
    what: 'host-gw of both families, keys of the configuration in any case',
    conf: { network: '10.5.0.0/16', ENABLEIPV6: true, ipv6network: 'fd66::/48', backend: { TYPE: 'host-gw' } },
    mtu: { v4: 1500, v6: 1500 },
  },
] as const

describe('a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  const { flannel } = network
  const leases = async () =>
    (await network.leases()).map(({ key, value }) => [key.split('/').at(-1), JSON.parse(value)] as const)

  for (const { what, conf, mtu } of NETWORKS)
    it(
      `${what}: plumb joins two nodes of flanneld as they are, all reach all with packets of full size, and nobody complains`,
      network.on(4, conf, async ([first, second, third, fourth], cluster) => {
        const theirs = [await flannel(first), await flannel(second)]
        const before = await leases()
        const agents = [third.agent(), fourth.agent()]
        const seen = await Promise.all(agents.map((agent) => agent.ready(20_000)))
        await assertReach(cluster.nodes, mtu)
        assert.deepEqual(
          (await leases()).filter(([key]) => before.some(([other]) => other === key)),
          before,
        )
        assert.equal((await leases()).length, 4)
        for (const { log } of theirs)
          assert.doesNotMatch(log(), /^E|[Ii]gnoring|not a subnet|error parsing|failed to parse/m)
        await until(async () => {
          for (const agent of agents) {
            const now = await agent.status()
            assert.deepEqual(
              [
                now?.peers.length,
                now?.peers.map(({ problem }) => problem).filter(Boolean),
                now?.state,
                now?.unreadable,
              ],
              [3, [], 'ready', 0],
            )
          }
          return seen
        })
      }),
    )

  it(
    "vxlan: plumb's device, address, routes, neighbours and FDB entries are flanneld's; a flannel.1 that flanneld makes again has another MAC, plumb follows, and keeps no entry of the old one",
    network.on(2, NETWORKS[1].conf, async ([first, second], cluster) => {
      const theirs = await flannel(first)
      await second.agent().ready(20_000)
      await assertReach(cluster.nodes, NETWORKS[1].mtu)
      const at = [...(await leases())].sort(([, a]) => (a.PublicIP === UNDERLAY.v4(1) ? -1 : 1))
      assert.deepEqual(Object.keys(at[0]?.[1]), Object.keys(at[1]?.[1]))
      assert.deepEqual(await shape(first), await shape(second))
      const fdb = async () => (await second.ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.7'])).stdout
      const old = at[0]?.[1].BackendData.VtepMAC
      assert.match(await fdb(), new RegExp(old))
      await theirs.stop()
      await first.ns.ip('link', 'del', 'flannel.7')
      await flannel(first)
      await assertReach(cluster.nodes, NETWORKS[1].mtu)
      assert.doesNotMatch(await fdb(), new RegExp(old))
      assert.equal((await fdb()).trim().split('\n').length, 1)
    }),
  )

  it(
    "what is masqueraded is the same on both: flanneld's iptables and plumb's nftables give a packet of a pod, to a pod, a node and the world, the same source",
    network.on(2, NETWORKS[0].conf, async ([first, second], cluster) => {
      await flannel(first)
      await second.agent().ready(20_000)
      await assertReach(cluster.nodes, NETWORKS[0].mtu)
      const seen = async (from: Node, to: Node) => {
        const pod = gatewayOf(from).v4 as string
        // What leaves the node has the address of a pod.
        for (const net of [`${UNDERLAY.v4(0)}/24`, `${gatewayOf(to).v4}/32`])
          await from.ns.exec(['ip', 'rule', 'add', 'to', net, 'lookup', '77'])
        await from.ns.ip('route', 'add', `${UNDERLAY.v4(0)}/24`, 'dev', 'eth0', 'src', pod, 'table', '77')
        await from.ns.ip(
          'route',
          'add',
          `${gatewayOf(to).v4}/32`,
          'via',
          (gatewayOf(to).v4 as string).replace(/\.1$/, '.0'),
          'dev',
          'flannel.1',
          'onlink',
          'src',
          pod,
          'table',
          '77',
        )
        const sources = [
          await sourceSeen(from.ns, to.ns, gatewayOf(to).v4 as string),
          await sourceSeen(from.ns, to.ns, UNDERLAY.v4(to.n)),
          await sourceSeen(from.ns, cluster.hub, UNDERLAY.v4(254)),
        ]
        return sources.map((source) =>
          source === pod ? 'the pod' : source === UNDERLAY.v4(from.n) ? 'the node' : source,
        )
      }
      assert.deepEqual(await seen(first, second), ['the pod', 'the node', 'the node'])
      assert.deepEqual(await seen(second, first), ['the pod', 'the node', 'the node'])
    }),
  )
})

// What there is of the backend's, without what differs from node to node and from plumb to flannel: numbers, names,
// marks, and nexthop objects.
async function shape({ ns, n }: Node): Promise<string[]> {
  const links = (await ns.json('link'))
    .filter(({ ifname }) => /^flannel/.test(ifname))
    .map(({ ifname, mtu, flags, linkinfo: { info_data } }) =>
      JSON.stringify([ifname, mtu, [...flags].sort(), info_data]),
    )
  const lines = [
    'ip -4 addr show dev flannel.7',
    'ip -6 addr show dev flannel-v6.7 scope global',
    'ip -4 route show dev flannel.7',
    'ip -6 route show dev flannel-v6.7',
    'ip neigh show nud permanent',
    'bridge fdb show dev flannel.7',
    'bridge fdb show dev flannel-v6.7',
  ]
  const texts = await Promise.all(
    lines.map(async (line) => (await ns.exec(line.split(' '))).stdout.split('\n').map((row) => row.trim())),
  )
  const all = [...links, ...texts.flatMap((rows, i) => rows.map((row) => `${i} ${row}`))].filter(
    (row) => !/fe80|kernel|valid_lft|qdisc/.test(row),
  )
  return all.map((row) => bare(row, n)).sort()
}

function bare(row: string, n: number): string {
  return row
    .replaceAll(UNDERLAY.v4(n), 'OWN4')
    .replaceAll(UNDERLAY.v6(n), 'OWN6')
    .replaceAll(UNDERLAY.v4(3 - n), 'OTHER4')
    .replaceAll(UNDERLAY.v6(3 - n), 'OTHER6')
    .replace(/ nhid \d+| proto \S+| nodad/g, '')
    .replace(/([\da-f]{2}:){5}[\da-f]{2}/g, 'MAC')
    .replace(/10\.5\.\d+\.0/g, 'SUBNET4')
    .replace(/fd66:0:0:[\da-f]+::/g, 'SUBNET6')
    .replace(/ +/g, ' ')
    .trim()
}
