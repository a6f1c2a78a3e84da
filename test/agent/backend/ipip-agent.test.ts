// lane: vmlong
// Tests agent with agent/backend/types/ipip.ts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach } from '../../support/etcd-networks.ts'
import { besideFlanneld } from '../../support/flanneld.ts'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { arrivals, inject, refusedBy } from '../../support/stranger.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'ipip' } }

describe('plumb agent with ipip', () => {
  it(
    'a deleted device comes back with its address and its routes',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1480 })
        const before = await shape(nodes[0] as Node)
        await nodes[0]?.ns.ip('link', 'delete', 'flannel.ipip')
        await until(async () => assert.deepEqual(await shape(nodes[0] as Node), before) === undefined, 30_000)
        await assertReach(nodes, { v4: 1480 })
      },
    ),
  )

  it(
    'packets of protocol 4 from an address without a lease reach no pod, are counted and named, and peers reach each other',
    inCluster(
      3,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [first, second, third] = nodes as [Node, Node, Node]
        await second.agent().ready(60_000)
        const open = first.agent('--tunnel-sources', 'any')
        await open.ready(60_000)
        const device = `link add name stranger up type ipip local ${UNDERLAY.v4(3)} remote ${UNDERLAY.v4(1)}`
        await third.ns.ip(...device.split(' '))
        const count = await arrivals(first, 'flannel.ipip')
        await inject(third.ns, 'stranger', first)
        assert.equal(await count(), 5)
        await open.stop()
        await first.agent().ready(60_000)
        const now = await arrivals(first, 'flannel.ipip')
        await inject(third.ns, 'stranger', first)
        assert.equal(await now(), 0)
        assert.deepEqual(await refusedBy(first), { refused: 5, strangers: [UNDERLAY.v4(3)] })
        await assertReach([first, second], { v4: 1480 })
        assert.deepEqual(await refusedBy(first), { refused: 5, strangers: [UNDERLAY.v4(3)] })
      },
    ),
  )

  it(
    'with IPv6 in the configuration the agent says that ipip carries IPv4 alone',
    inCluster(
      1,
      (one) => fileStore(one, { ...CONF, EnableIPv6: true, IPv6Network: 'fd66::/48' }),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const agent = (nodes[0] as Node).agent()
        await until(() => /Cannot use backend ipip with IPv6: it carries IPv4 alone/.test(agent.log()), 60_000)
      },
    ),
  )
})

describe('ipip in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  // flanneld wants it, and does not load it.
  before(() => execa('modprobe', ['br_netfilter']))

  it(
    'the lease, the device, its address, the routes and subnet.env are flanneld’s; packets of full size pass both ways',
    network.on(2, { ...CONF, Network: '10.5.0.0/16' }, async ([first, second], { nodes }) => {
      const theirs = await network.flannel(first)
      await second.agent().ready(60_000)
      await assertReach(nodes, { v4: 1480 })
      const leases = (await network.leases()).map(({ value }) => JSON.parse(value))
      assert.deepEqual(
        leases.sort((a, b) => (a.PublicIP < b.PublicIP ? -1 : 1)),
        [first, second].map(({ n }) => ({ PublicIP: UNDERLAY.v4(n), PublicIPv6: null, BackendType: 'ipip' })),
      )
      assert.deepEqual(await shape(first), await shape(second))
      const [their, own] = [first, second].map((node) =>
        readFileSync(join(node.dir, 'subnet.env'), 'utf8').replace(
          /(?<=^FLANNEL_SUBNET=10\.5)\.\d+\.1\/24$/m,
          '.N.1/24',
        ),
      )
      assert.equal(own, their)
      assert.match(own ?? '', /^FLANNEL_MTU=1480$/m)
      assert.doesNotMatch(theirs.log(), /^E/m)
    }),
  )

  it(
    'with DirectRouting the same',
    network.on(
      2,
      { Network: '10.5.0.0/16', Backend: { Type: 'ipip', DirectRouting: true } },
      async ([first, second], { nodes }) => {
        await network.flannel(first)
        await second.agent().ready(60_000)
        await assertReach(nodes, { v4: 1480 })
        assert.deepEqual(await shape(first), await shape(second))
      },
    ),
  )
})

// What there is of the backend's, without what differs from node to node and from plumb to flannel: numbers, marks and
// nexthop objects.
async function shape({ ns, n }: Node): Promise<string[]> {
  const links = (await ns.json('-d', 'link'))
    .filter(({ ifname }) => ifname === 'flannel.ipip')
    .map(({ mtu, flags, linkinfo: { info_data } }) => JSON.stringify([mtu, [...flags].sort(), info_data]))
  const lines = [
    'ip -4 -o addr show dev flannel.ipip',
    'ip -4 route show dev flannel.ipip',
    // flanneld's direct routes say onlink, too, which changes nothing for a gateway on the link.
    'ip -4 route show dev eth0 | grep -v default | sed s/onlink//',
  ]
  const texts = await Promise.all(lines.map(async (line) => (await ns.exec(['sh', '-c', line])).stdout.split('\n')))
  return [...links, ...texts.flat()]
    .map((row) =>
      row
        .replaceAll(UNDERLAY.v4(n), 'OWN')
        .replaceAll(UNDERLAY.v4(3 - n), 'OTHER')
        .replace(/ nhid \d+| proto \S+|^\d+: | +$/g, '')
        .replace(/10\.\d+\.\d+\.0/g, 'SUBNET')
        .replace(/ +/g, ' ')
        .trim(),
    )
    .filter((row) => row && !/valid_lft/.test(row.replace(/\\.*/, '')))
    .sort()
}
