// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { joinEtcd } from '../../../support/etcd-nodes.ts'
import { type Flows, flows, podOn, unharmed } from '../../../support/flows.ts'
import { inNamespaces, until } from '../../../support/harness.ts'
import { type Agent, inCluster, type Node, subnetEnv } from '../../../support/nodes.ts'
import { patient } from '../../../support/patience.ts'
import { draft } from '../../../support/suites/leases.ts'

const PREFIX = '/coreos.com/network'
const CONF = JSON.stringify({ Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.99.0' })
const key = (n: number) => `${PREFIX}/subnets/10.244.${n}.0-24`
const value = (n: number) => encodeValue(draft('', n))

describe('plumb agent, when its etcd is back', () => {
  let etcd: Etcd
  afterEach(() => etcd.stop())
  it(
    'compacted while it was cut off, after an addition, a change and a removal: all is programmed within 5 s, its own entries and flows are never touched',
    onEtcd(1, async (one, agent, running) => {
      await etcd.cut()
      await until(async () => !(await agent.status())?.store.connected, 16_000)
      const admin = etcd.within()
      await admin.put(key(104), value(104))
      await admin.put(key(101), value(109))
      await admin.del(key(102))
      await admin.compact()
      const began = Date.now()
      await etcd.heal()
      const wanted = ['172.30.0.103', '172.30.0.104', '172.30.0.109', '172.30.0.2']
      await until(async () => assert.deepEqual(await forwarding(one), wanted) === undefined, 10_000)
      assert.ok(Date.now() - began < patient(5000), `${Date.now() - began} ms`)
      assert.equal((await one.ns.ip('route', 'show', 'proto', '112')).split('\n').length, 4)
      unharmed(await running.end())
      assert.equal((await agent.status())?.ready, true)
    }),
  )

  it(
    'three members restarted, one after the other and all at once: flows go on, and what is new is programmed 5 s after they answer again',
    onEtcd(3, async (one, agent, running) => {
      let n = 110
      for (const members of [[0], [1], [2], [0, 1, 2]]) {
        for (const i of members) await etcd.kill(i)
        for (const i of members) await etcd.start(i)
        await etcd.ready()
        n++
        await until(
          () =>
            etcd
              .put(key(n), value(n))
              .then(() => true)
              .catch(() => false),
          10_000,
        )
        const back = Date.now()
        await until(async () => (await forwarding(one)).includes(`172.30.0.${n}`), 10_000)
        assert.ok(Date.now() - back < patient(5000), `${members}: ${Date.now() - back} ms`)
      }
      assert.equal((await forwarding(one)).length, 8)
      unharmed(await running.end())
      await until(async () => (await agent.readyz()) === '200 ready\n')
    }),
  )

  it(
    'an agent that starts, or boots, while it is away says so in status and log, keeps what is there, and is ready 5 s after its return with the same subnet',
    onEtcd(1, async (one, agent, running) => {
      const had = subnetEnv(one)
      await etcd.kill()
      await agent.stop('SIGKILL')
      // A boot: /run is empty, and pods start before etcd does.
      rmSync(join(one.dir, 'subnet.env'))
      const again = one.agent()
      await until(async () =>
        /^503 the network’s configuration is not known yet: etcd at http:/.test(await again.readyz()),
      )
      assert.deepEqual(subnetEnv(one), had)
      await until(() => /waiting: the network’s configuration is not known yet: etcd at/.test(again.log()))
      assert.equal((await forwarding(one)).length, 4)
      await etcd.start()
      await etcd.ready()
      const back = Date.now()
      await again.ready(10_000)
      assert.ok(Date.now() - back < patient(5000), `${Date.now() - back} ms`)
      assert.deepEqual(subnetEnv(one), had)
      unharmed(await running.end())
    }),
  )

  /** Two nodes that know of three more in an etcd of so many members, and flows between a pod of each. */
  function onEtcd(members: 1 | 3, work: (one: Node, agent: Agent, running: Flows) => Promise<void>) {
    return inCluster(
      2,
      () => ['--etcd-endpoints', etcd.endpoints.join(',')],
      async (cluster, test) => {
        test.timeout(60_000)
        etcd = await startEtcd({ members })
        await etcd.put(`${PREFIX}/config`, CONF)
        for (const n of [101, 102, 103]) await etcd.put(key(n), value(n))
        await joinEtcd(cluster, etcd)
        const [one, two] = cluster.nodes as [Node, Node]
        const agent = one.agent()
        two.agent()
        await agent.ready(30_000)
        await until(async () => (await forwarding(one)).length === 4, 10_000)
        await inNamespaces(['a', 'b'], async ({ a, b }) =>
          work(one, agent, await flows(a, b, [await podOn(one, a), await podOn(two, b)])),
        ).call(test)
      },
    )
  }
})

/** Where peers' tunnels lead, in order. */
async function forwarding({ ns }: Node): Promise<string[]> {
  const { stdout } = await ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.1'])
  return [...stdout.matchAll(/dst (\S+) self permanent/g)].map(([, dst]) => dst as string).sort()
}
