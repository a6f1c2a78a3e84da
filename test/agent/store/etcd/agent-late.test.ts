// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { joinEtcd } from '../../../support/etcd-nodes.ts'
import { ping, until } from '../../../support/harness.ts'
import { type Agent, type Cluster, inCluster, type Node, subnetEnv } from '../../../support/nodes.ts'
import { draft } from '../../../support/suites/leases.ts'

const PLUMB = join(import.meta.dir, '../../../../dist/plumb')
const PREFIX = '/coreos.com/network'
const VXLAN = {
  Network: '10.244.0.0/16',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.99.0',
  Backend: { Type: 'vxlan' },
}

describe('plumb agent, when its etcd is not there at a boot', () => {
  let etcd: Etcd
  before(async () => {
    etcd = await startEtcd()
  })
  beforeEach(async () => {
    await etcd.ready()
    await etcd.del(PREFIX, true)
    await etcd.put(`${PREFIX}/config`, JSON.stringify(VXLAN))
  })
  after(() => etcd.stop())
  const store = () => ['--etcd-endpoints', etcd.endpoints.join(',')]

  it(
    'packets flow as it was known last: device, routes, masquerade; ready, degraded and stale until etcd comes, then as etcd says',
    inCluster(2, store, async (cluster, test) => {
      test.timeout(120_000)
      const [one, two] = await began(cluster, etcd)
      const [had, first] = [
        subnetEnv(one),
        (node: Node) => (subnetEnv(node)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0'),
      ]
      await boot(etcd, [one, two])
      const agents = [one.agent(), two.agent()]
      for (const agent of agents) await agent.ready(40_000)
      assert.deepEqual(subnetEnv(one), had)
      await until(() => ping(one.ns, first(two)), 20_000)
      await until(() => ping(two.ns, first(one)), 20_000)
      assert.match((await one.ns.exec(['nft', 'list', 'ruleset'])).stdout, /masquerade/)
      const [agent] = agents as [Agent]
      assert.match(await agent.readyz(), /^200 degraded: .*the network is as it was known at 20\S+Z, before the start/s)
      assert.ok((await agent.status())?.stale)
      assert.match(
        (await one.ns.exec([PLUMB, 'status', '--socket', join(one.dir, 'agent.sock')])).stdout,
        /as it was known at/,
      )
      await etcd.start()
      await etcd.ready()
      await etcd.put(`${PREFIX}/subnets/10.244.200.0-24`, encodeValue(draft('', 200)))
      for (const each of agents)
        await until(async () => ((await each.status()) ?? { stale: 1 }).stale === undefined, 60_000)
      await until(async () => (await one.ns.ip('route', 'show', 'proto', '112')).includes('10.244.200.0/24'), 20_000)
      assert.deepEqual(subnetEnv(one), had)
      assert.match(agent.log(), /the store answers; the snapshot from before the start is no longer used/)
      for (const each of agents) assert.equal(await each.stop(), 0)
      // Cleanup forgets it.
      assert.equal((await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])).status, 0)
      assert.deepEqual(
        readdirSync(join(one.dir, 'state')).filter((name) => name.includes('network')),
        [],
      )
    }),
  )

  it(
    'another configuration that etcd has when it comes is begun again with',
    inCluster(1, store, async (cluster, test) => {
      test.timeout(120_000)
      const [one] = await began(cluster, etcd)
      await etcd.put(
        `${PREFIX}/config`,
        JSON.stringify({ ...VXLAN, Network: '10.245.0.0/16', SubnetMin: '10.245.1.0', SubnetMax: '10.245.99.0' }),
      )
      await boot(etcd, [one])
      const agent = one.agent()
      await agent.ready(40_000)
      assert.match(subnetEnv(one)?.['FLANNEL_SUBNET'] ?? '', /^10\.244\./)
      await etcd.start()
      await until(() => /^10\.245\./.test(subnetEnv(one)?.['FLANNEL_SUBNET'] ?? ''), 60_000)
      await until(async () => (await agent.status())?.state === 'ready', 20_000)
      assert.match(agent.log(), /the store has another network configuration; starting again with it/)
    }),
  )

  it(
    'a lease of its own that has ended gives no pod an address: no subnet.env, not ready with that reason, until etcd says what the node has',
    inCluster(1, store, async (cluster, test) => {
      test.timeout(120_000)
      const [one] = await began(cluster, etcd)
      await boot(etcd, [one])
      const text = readFileSync(stateFile(one), 'utf8')
      writeFileSync(
        stateFile(one),
        text.replace(/"at":\d+/, '"at":1000000000000').replace(/"expires":\d+/, '"expires":1000000060000'),
      )
      const agent = one.agent()
      await until(
        async () =>
          (await agent.status())?.reasons.some((why) =>
            /this node's lease of 10\.244\.\d+\.0\/24 ended at 2001-\S+: another node may have it by now/.test(why),
          ),
        20_000,
      )
      assert.equal(subnetEnv(one), undefined)
      assert.equal((await one.ns.exec(['ip', 'link', 'show', 'flannel.1'])).status, 1)
      await etcd.start()
      await agent.ready(60_000)
      assert.ok(subnetEnv(one))
    }),
  )
})

/** Nodes that have known the network, and were lost without a word. */
async function began(cluster: Cluster, etcd: Etcd): Promise<[Node, Node]> {
  await joinEtcd(cluster, etcd)
  const agents = cluster.nodes.map((node) => node.agent())
  for (const agent of agents) await agent.ready(30_000)
  const keys = (await etcd.list(`${PREFIX}/subnets/`)).map(({ key }) => key.slice(key.lastIndexOf('/') + 1))
  assert.equal(keys.length, cluster.nodes.length)
  for (const node of cluster.nodes)
    await until(
      () => existsSync(stateFile(node)) && keys.every((key) => readFileSync(stateFile(node), 'utf8').includes(key)),
      20_000,
    )
  for (const agent of agents) await agent.stop('SIGKILL')
  return cluster.nodes as [Node, Node]
}

/** A boot while etcd is away: /run is empty, as the kernel is. */
async function boot(etcd: Etcd, nodes: readonly Node[]): Promise<void> {
  await etcd.kill()
  for (const { ns, dir } of nodes) {
    rmSync(join(dir, 'subnet.env'))
    await ns.ip('link', 'del', 'flannel.1')
    assert.equal((await ns.exec(['nft', 'flush', 'ruleset'])).status, 0)
  }
}

function stateFile({ dir }: Node): string {
  const state = join(dir, 'state')
  return join(state, readdirSync(state).find((name) => /^network.*\.json$/.test(name)) ?? 'network.json')
}
