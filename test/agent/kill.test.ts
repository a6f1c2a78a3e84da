// lane: peers
// Tests agent, beside flanneld and etcd.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster as Etcd, startEtcd } from '../support/etcd.ts'
import { joinEtcd } from '../support/etcd-nodes.ts'
import { flows, podOn, unharmed } from '../support/flows.ts'
import { inNamespaces, until } from '../support/harness.ts'
import { churn, compare, drift } from '../support/lease-churn.ts'
import { inCluster, type Node, subnetEnv } from '../support/nodes.ts'
import { random } from '../support/seed.ts'

/** How often an agent is killed; the hundred takes a minute and a half. */
const KILLS = Number(process.env['PLUMB_KILLS'] ?? 30)
/** A start is done within that time, on a machine that is not busy. */
const LONGEST_MS = 500

describe('SIGKILL of plumb agent at any moment', () => {
  let etcd: Etcd
  beforeEach(async () => {
    etcd = await startEtcd()
  })
  afterEach(() => etcd.stop())

  for (const [backend, times] of [
    ['vxlan', KILLS],
    ['host-gw', Math.ceil(KILLS / 2)],
  ] as const) {
    it(
      `${backend}: ${times} times while leases come, change and go and entries are undone by hand: no TCP or UDP flow between pods is harmed, the next start converges, nothing is left`,
      inCluster(
        2,
        () => ['--etcd-endpoints', etcd.endpoints.join(',')],
        async (cluster, test) => {
          test.timeout(30_000 + times * 2000)
          await etcd.put(
            '/coreos.com/network/config',
            JSON.stringify({
              Network: '10.244.0.0/16',
              SubnetMin: '10.244.1.0',
              SubnetMax: '10.244.99.0',
              Backend: { Type: backend },
            }),
          )
          await joinEtcd(cluster, etcd)
          const [one, two] = cluster.nodes as [Node, Node]
          const other = two.agent()
          const first = one.agent()
          for (const agent of [first, other]) await agent.ready(30_000)
          await until(async () => (await first.status())?.kinds['route']?.programmed === 1, 10_000)
          const had = subnetEnv(one)
          await inNamespaces(['a', 'b'], async ({ a, b }) => {
            const running = await flows(a, b, [await podOn(one, a), await podOn(two, b)])
            const beside = [churn(etcd, backend), drift(one.ns)]
            await first.stop('SIGKILL')
            for (let i = 1; i < times; i++) {
              const agent = one.agent()
              // Every second one has been through its first step.
              if (i % 2 === 0) await until(() => agent.log().includes('agent: programmed'), 10_000)
              await Bun.sleep(random() * LONGEST_MS)
              assert.equal(await agent.stop('SIGKILL'), 129, agent.log())
            }
            const done = await Promise.all(beside.map((each) => each.end()))
            assert.ok(Math.min(...done) > times, `${done} changes`)
            const last = one.agent()
            await last.ready(30_000)
            const own = (subnetEnv(one)?.['FLANNEL_SUBNET'] ?? '').replace('.1/', '.0/')
            await until(async () => {
              const { has, wanted } = await compare(etcd, one.ns, backend, own)
              return assert.equal(has, wanted) === undefined
            }, 10_000)
            const told = await running.end()
            unharmed(told)
            assert.deepEqual(subnetEnv(one), had)
            await leftNothing(one, last.pid)
          }).call(test)
        },
      ),
    )
  }
})

/** No monitors but the agent's own, no drafts of files, one nexthop for each gateway. */
async function leftNothing({ ns, dir }: Node, pid: number): Promise<void> {
  const marked = readdirSync('/proc').filter(
    (one) => /^\d+$/.test(one) && read(`/proc/${one}/environ`).includes('PLUMB_MONITOR_OF=') && isIn(one, ns.path),
  )
  await until(
    () =>
      assert.deepEqual(
        marked.filter(
          (one) =>
            read(`/proc/${one}/status`) !== '' &&
            !new RegExp(`^PPid:\\t${pid}$`, 'm').test(read(`/proc/${one}/status`)),
        ),
        [],
      ) === undefined,
  )
  assert.deepEqual(
    ['', 'state'].flatMap((folder) => readdirSync(join(dir, folder)).filter((name) => name.startsWith('.'))),
    [],
  )
  const { stdout } = await ns.exec(['ip', 'nexthop', 'show'])
  const used = (await ns.exec(['ip', 'route', 'show', 'proto', '112'])).stdout
  for (const [, id] of stdout.matchAll(/^id (\d+) /gm))
    assert.ok(used.includes(`nhid ${id} `), `nexthop ${id} leads nothing`)
}

function isIn(pid: string, path: string): boolean {
  const of = (file: string) => Bun.spawnSync(['stat', '-L', '-c', '%i', file]).stdout.toString()
  return of(`/proc/${pid}/ns/net`) === of(path)
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
