// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { joinEtcd } from '../../../support/etcd-nodes.ts'
import { flows, podOn, unharmed } from '../../../support/flows.ts'
import { inNamespaces, until } from '../../../support/harness.ts'
import { type Agent, inCluster, type Node } from '../../../support/nodes.ts'
import { PATIENCE, patient } from '../../../support/patience.ts'
import { draft } from '../../../support/suites/leases.ts'

const PREFIX = '/coreos.com/network'
const CONF = JSON.stringify({
  Network: '10.244.0.0/16',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.99.0',
  Backend: { Type: 'host-gw' },
})
/** How long etcd is away, in seconds. */
const AWAY_S = Number(process.env['PLUMB_OUTAGE_S'] ?? 20)

describe('plumb agent, when its etcd is away', () => {
  let etcd: Etcd
  before(async () => {
    etcd = await startEtcd()
    await etcd.put(`${PREFIX}/config`, CONF)
    await etcd.put(`${PREFIX}/subnets/10.244.150.0-24`, foreign(150))
  })
  after(() => etcd.stop())

  for (const [what, fail, mend] of [
    ['killed', () => etcd.kill(), () => etcd.start()],
    ['stopped (SIGSTOP)', async () => etcd.freeze(), async () => etcd.thaw()],
    ['cut off by dropped packets', () => etcd.cut(), () => etcd.heal()],
  ] as const)
    it(
      `${what} for ${AWAY_S} s: flows go on, what is deleted by hand is back, less than 1 % of a core, status and /readyz say why, once in the log; what is new is there 5 s after its return`,
      inCluster(
        2,
        () => ['--etcd-endpoints', etcd.endpoints.join(',')],
        async (cluster, test) => {
          test.timeout((AWAY_S + 50) * 1000)
          await joinEtcd(cluster, etcd)
          const [one, two] = cluster.nodes as [Node, Node]
          const [agent, other] = [one.agent(), two.agent()]
          for (const each of [agent, other]) await each.ready(30_000)
          await until(async () => (await agent.status())?.kinds['route']?.programmed === 2, 10_000)
          await inNamespaces(['a', 'b'], async ({ a, b }) => {
            const running = await flows(a, b, [await podOn(one, a), await podOn(two, b)])
            const before = await routes(one)
            const began = Date.now()
            await fail()
            await until(
              async () =>
                /^200 degraded: the store is away, going on with what is known: .*etcd at /.test(await agent.readyz()),
              16_000,
            )
            assert.match((await agent.status())?.store.error ?? '', /^etcd at http:/)
            // Of several rounds, the quietest one counts, and a slow machine needs more: what is busy beside it slows the processor, too.
            const shares: number[] = []
            while (Date.now() - began < AWAY_S * 1000) {
              const [cpu, since] = [cpuMs(agent.pid), Date.now()]
              assert.equal(await routes(one), before)
              // No flow goes that way.
              await one.ns.ip('route', 'del', '10.244.150.0/24')
              await until(async () => (await routes(one)) === before, 1000)
              await Bun.sleep(5000)
              shares.push((cpuMs(agent.pid) - cpu) / (Date.now() - since))
            }
            assert.ok(
              Math.min(...shares) < 0.01 * PATIENCE,
              `${shares.map((share) => (share * 100).toFixed(2)).join(', ')} % of a core`,
            )
            await mend()
            await etcd.ready()
            const back = Date.now()
            await etcd.put(`${PREFIX}/subnets/10.244.200.0-24`, foreign(200))
            await until(async () => (await routes(one)).includes('10.244.200.0/24 '), 10_000)
            assert.ok(Date.now() - back < patient(5000), `${Date.now() - back} ms`)
            // Nobody answers for the lease that is foreign.
            await until(async () => !/the store is away/.test(await agent.readyz()))
            await etcd.del(`${PREFIX}/subnets/10.244.200.0-24`)
            await until(async () => (await routes(one)) === before)
            unharmed(await running.end())
            await until(() => told(agent, /the store is back after \d+ (s|min)/) === 1)
            assert.equal(told(agent, /the store is away/), 1, agent.log())
            assert.ok(agent.log().split('\n').length < 40, agent.log())
          }).call(test)
        },
      ),
    )
})

function foreign(last: number): string {
  return encodeValue({ ...draft('', last), backend: 'host-gw' })
}

async function routes({ ns }: Node): Promise<string> {
  return (await ns.exec(['ip', 'route', 'show', 'proto', '112'])).stdout
}

function told(agent: Agent, what: RegExp): number {
  return agent
    .log()
    .split('\n')
    .filter((line) => what.test(line)).length
}

// Its own and its children's, in ticks of 10 ms (proc(5)).
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * 10, 0)
}
