// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { gatewayOf, networksIn } from '../../../support/etcd-networks.ts'
import { until } from '../../../support/harness.ts'
import { subnetEnv, UNDERLAY } from '../../../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../../../dist/plumb')
const WIDE = { Network: '10.5.0.0/16', Backend: { Type: 'vxlan' } }
const SMALL = { Network: '10.5.0.0/22', SubnetLen: 24, Backend: { Type: 'vxlan' } }

describe('plumb agent and its lease in etcd', () => {
  let etcd: Etcd
  before(async () => {
    etcd = await startEtcd()
  })
  after(() => etcd.stop())
  const network = networksIn(() => etcd)
  const { prefix, leases } = network
  const empty = async () => {
    for (const key of ['subnets/', 'plumb/']) await etcd.del(`${prefix()}/${key}`, true)
  }
  const foreign = (last: number) =>
    `{"PublicIP":"172.30.0.${last}","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:${last}"}}`

  it(
    'without a configuration it waits, and starts within seconds of its coming',
    network.on(1, undefined, async ([one]) => {
      const agent = one.agent()
      // As often as it likes, but it asks.
      await until(async () => (await etcd.calls('Range')) > 3)
      assert.equal(subnetEnv(one), undefined)
      await network.configure(WIDE)
      await agent.ready(10_000)
    }),
  )

  it(
    'etcd emptied, and the memory of the node too: subnet.env alone gives it the same subnet; one outside the network gives it another',
    network.on(1, WIDE, async ([one]) => {
      let agent = one.agent()
      await agent.ready(20_000)
      const had = subnetEnv(one)
      for (const [conf, same] of [
        [WIDE, true],
        [{ ...WIDE, Network: '10.6.0.0/16' }, false],
      ] as const) {
        await agent.stop()
        await empty()
        await network.configure(conf)
        rmSync(join(one.dir, 'state'), { recursive: true })
        agent = one.agent()
        await agent.ready(20_000)
        assert.equal(subnetEnv(one)?.['FLANNEL_SUBNET'] === had?.['FLANNEL_SUBNET'], same)
      }
      assert.match(gatewayOf(one).v4 ?? '', /^10\.6\./)
    }),
  )

  it(
    'three agents for three subnets, started at once, six times: each has one of its own; a fourth says why it has none, and takes the one that is given back within 5 s',
    network.on(4, SMALL, async ([one, two, three, four]) => {
      for (let round = 1; round <= 6; round++) {
        const agents = [one, two, three].map((node) => node.agent())
        await Promise.all(agents.map((agent) => agent.ready(20_000)))
        assert.equal(new Set([one, two, three].map((node) => gatewayOf(node).v4)).size, 3)
        await Promise.all(agents.map((agent) => agent.stop()))
        if (round === 6) continue
        await empty()
        for (const { dir } of [one, two, three])
          for (const name of ['state', 'subnet.env']) rmSync(join(dir, name), { recursive: true })
      }
      const late = four.agent()
      await until(async () => {
        const status = await late.status()
        assert.equal(status?.ready, false)
        assert.match(
          status?.reasons.join('\n') ?? '',
          /every \/24 of 10\.5\.0\.0\/22 from 10\.5\.1\.0 to 10\.5\.3\.0 is taken; widen the network or remove stale nodes/,
        )
        return true
      }, 10_000)
      // Long enough for its pauses to be long.
      await Bun.sleep(5000)
      assert.equal((await two.ns.exec([PLUMB, 'agent', 'cleanup', ...two.options])).status, 0)
      await late.ready(5000)
      assert.equal((await leases()).length, 3)
    }),
  )

  it(
    'a reservation stays one, and its node has it, through three restarts and a cleanup',
    network.on(1, WIDE, async ([one]) => {
      await etcd.put(`${prefix()}/subnets/10.5.77.0-24`, `{"PublicIP":"${UNDERLAY.v4(1)}","BackendType":"vxlan"}`)
      for (let i = 0; i < 4; i++) {
        const agent = one.agent()
        await agent.ready(20_000)
        assert.equal(gatewayOf(one).v4, '10.5.77.1')
        assert.deepEqual(
          (await leases()).map(({ key, lease }) => [key, lease]),
          [[`${prefix()}/subnets/10.5.77.0-24`, '0']],
        )
        await agent.stop()
      }
      assert.equal((await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])).status, 0)
      assert.equal((await leases())[0]?.lease, '0')
    }),
  )

  it(
    'its key is deleted, or its value overwritten: it has the same subnet again, and its value; another takes it meanwhile: the agent ends with status 1 and the reason',
    network.on(1, WIDE, async ([one]) => {
      const agent = one.agent()
      await agent.ready(20_000)
      const [{ key = '', value = '' } = {}] = await leases()
      await etcd.del(key)
      await until(async () => (await leases())[0]?.value === value, 5000)
      await etcd.put(key, value.replace(/VtepMAC":"[^"]+/, 'VtepMAC":"02:00:00:00:00:42'))
      await until(async () => (await leases())[0]?.value === value, 5000)
      const [{ mod = '' } = {}] = await leases()
      await Bun.sleep(1000)
      assert.equal((await leases())[0]?.mod, mod)
      process.kill(agent.pid, 'SIGSTOP')
      await etcd.del(key)
      await etcd.put(key, foreign(99))
      process.kill(agent.pid, 'SIGCONT')
      assert.equal(await agent.ended, 1)
      assert.match(
        agent.log(),
        /its subnet belongs to another node, and its pods cannot keep their addresses: Cannot keep 10\.5\.\d+\.0\/24 for node "n1", whose pods have addresses of it: 10\.5\.\d+\.0\/24 belongs to the node at 172\.30\.0\.99/,
      )
      assert.equal((await leases())[0]?.value, foreign(99))
    }),
  )

  it(
    'a key and a value that cannot be read: one line each in the log, however often others change; others are served',
    network.on(1, { ...WIDE, SubnetMin: '10.5.100.0' }, async ([one]) => {
      await etcd.put(`${prefix()}/subnets/nonsense`, foreign(90))
      await etcd.put(`${prefix()}/subnets/10.5.9.0-24`, '{"Public')
      await etcd.put(`${prefix()}/subnets/10.5.8.0-24`, foreign(91))
      const agent = one.agent()
      await agent.ready(20_000)
      for (const last of [92, 93]) await etcd.put(`${prefix()}/subnets/10.5.${last}.0-24`, foreign(last))
      await until(async () => (await one.ns.ip('route')).includes('10.5.93.0/24'))
      const status = await agent.status()
      assert.deepEqual([status?.unreadable, status?.peers.length, status?.ready], [2, 3, true])
      const said = agent
        .log()
        .split('\n')
        .filter((line) => /passed over/.test(line))
      assert.deepEqual(
        [
          said.length,
          said.filter((line) => line.includes('"nonsense"')).length,
          said.filter((line) => line.includes('"10.5.9.0-24"')).length,
        ],
        [2, 1, 1],
        agent.log(),
      )
    }),
  )
})
