// lane: soak
// Tests agent and plugins for an hour.
import assert from 'node:assert/strict'
import { startEtcd } from '../../support/etcd.ts'
import { joinEtcd } from '../../support/etcd-nodes.ts'
import { until } from '../../support/harness.ts'
import { churn, type Going, going, withdraw } from '../../support/lease-churn.ts'
import { type Agent, type Cluster, inCluster } from '../../support/nodes.ts'
import { changes } from '../../support/plugin-scenes.ts'
import { random } from '../../support/seed.ts'
import { act, DEEDS } from './deeds.ts'
import { type Pods, podsOn, unreached } from './pods.ts'
import { inventory, objectsOf, type Watch, watch } from './watch.ts'

/** How long it goes on, in seconds. */
const WHOLE_S = Number(process.env['PLUMB_SOAK_S'] ?? 3600)
const PODS_PER_MINUTE = 100
/**
 * Pauses between what else happens, in milliseconds: leases, deeds by hand to what agents made and to what plugins
 * made, a look, a line of figures.
 */
const PAUSE = { lease: 1000, agent: 2000, pods: 20_000, look: 5000, line: 60_000 } as const
const CONF = {
  Network: '10.244.0.0/16',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.99.0',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  Backend: { Type: 'vxlan' },
}

describe('a soak', () => {
  it(`of ${WHOLE_S} s: pods come and go, leases too, and things are undone by hand: agents keep their size, and the nodes are as before`, async function () {
    this.timeout((WHOLE_S + 600) * 1000)
    const etcd = await startEtcd()
    try {
      await inCluster(
        3,
        () => ['--etcd-endpoints', etcd.endpoints.join(','), '--install-cni'],
        async (cluster) => {
          await etcd.put('/coreos.com/network/config', JSON.stringify(CONF))
          await joinEtcd(cluster, etcd)
          const agents = cluster.nodes.map((node) => node.agent())
          for (const agent of agents) await agent.ready(60_000)
          const scene: Scene = { cluster, agents, pods: cluster.nodes.map(podsOn), calm: () => withdraw(etcd) }
          await soak(scene, () => churn(etcd, 'vxlan', PAUSE.lease))
        },
      ).call(this)
    } finally {
      await etcd.stop()
    }
  })
})

interface Scene {
  readonly cluster: Cluster
  readonly agents: readonly Agent[]
  readonly pods: readonly Pods[]
  /** Takes the leases away of nodes that are not there. */
  calm(): Promise<void>
}

async function soak(scene: Scene, leases: () => Going): Promise<void> {
  const { pods, agents, cluster } = scene
  // What is there once only, JavaScript's own memory too, has come by then.
  await storm(scene, leases, Math.min(600, WHOLE_S / 6), [])
  const before = await rest(scene)
  const counts = await Promise.all(cluster.nodes.map(({ ns }) => inventory(ns)))
  const watches = agents.map(watch)
  const first = await Promise.all(watches.map(({ steps }) => steps()))
  const lost = await storm(scene, leases, (WHOLE_S * 5) / 6, watches)
  const last = await Promise.all(watches.map(({ steps }) => steps()))
  tell(scene, watches)
  for (const [i, { count, long, sum }] of last.entries()) {
    const { count: had, long: hadLong, sum: hadSum } = first[i] as (typeof last)[number]
    say(
      `${cluster.nodes[i]?.name}: ${count - had} steps, ${(((sum - hadSum) / (count - had)) * 1000).toFixed(1)} ms each, ${long - hadLong} over 1 s`,
    )
  }
  for (const [i, agent] of agents.entries())
    for (const [line] of agent.log().matchAll(/.*took=\d{4,}ms.*/g)) say(`${cluster.nodes[i]?.name}: ${line}`)
  const after = await rest(scene)
  say(
    `objects before and after: ${JSON.stringify(counts)} ${JSON.stringify(await Promise.all(cluster.nodes.map(({ ns }) => inventory(ns))))}`,
  )
  assert.deepEqual(
    pods.flatMap(({ count }) => count.wrong),
    [],
  )
  assert.deepEqual(lost, [])
  assert.deepEqual(
    after.map((text, i) => changes(before[i] as string, text)),
    after.map(() => []),
  )
  for (const one of watches) flat(one)
  for (const [i, { long }] of last.entries())
    assert.equal(long - (first[i]?.long ?? 0), 0, `${cluster.nodes[i]?.name}: steps longer than a second`)
}

/** Everything at once for so many seconds. Gives what was not reached. */
async function storm(
  { cluster, pods, agents }: Scene,
  leases: () => Going,
  seconds: number,
  watches: readonly Watch[],
): Promise<string[]> {
  const lost: string[] = []
  let isQuiet = false
  let deed: Promise<void> = Promise.resolve()
  const any = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)] as T
  const beside = [
    leases(),
    going(() => act(any(cluster.nodes), DEEDS.agent), PAUSE.agent),
    going(async () => {
      if (!isQuiet) deed = any(pods).deed()
      await deed
    }, PAUSE.pods),
    going(async () => {
      for (const one of watches) one.look()
    }, PAUSE.look),
    // Each node has a third of the pods, one after the other.
    ...pods.map((one) => paced(one.turn, (60_000 * pods.length) / PODS_PER_MINUTE)),
    going(async () => {
      isQuiet = true
      // One that is under way may take the very links of what is made now.
      await deed
      const [one, two] = [...pods].sort(() => random() - 0.5) as [Pods, Pods]
      lost.push(...(await unreached(one, two)))
      isQuiet = false
      say(figures(pods, agents, watches))
    }, PAUSE.line),
  ]
  await Bun.sleep(seconds * 1000)
  for (const one of beside) await one.end()
  return lost
}

// One begins when its time has come, later ones not sooner because of one that was late.
function paced(work: () => Promise<void>, everyMs: number): Going {
  return going(async () => {
    const began = performance.now()
    await work()
    await Bun.sleep(Math.max(0, everyMs - (performance.now() - began)))
  }, 0)
}

/** Nobody does anything any more: what the nodes have once their agents have put all right and their pods are gone. */
async function rest({ cluster, pods, agents, calm }: Scene): Promise<string[]> {
  await calm()
  for (const one of pods) {
    // The bridge is as the last ADD wants it.
    await one.fresh()
    await one.clear()
  }
  for (const agent of agents) await agent.ready(60_000)
  await until(
    async () =>
      assert.deepEqual(
        await Promise.all(agents.map(async (agent) => (await agent.status())?.peers.length)),
        [2, 2, 2],
      ) === undefined,
    30_000,
  )
  const look = () => Promise.all(cluster.nodes.map(({ ns }) => objectsOf(ns)))
  let seen: string[] = []
  await until(async () => {
    const [had, now] = [seen, await look()]
    seen = now
    await Bun.sleep(3000)
    return had.join() === now.join()
  }, 60_000)
  return seen
}

function flat({ quarters }: Watch): void {
  const [one, , , four] = quarters()
  assert.ok(one && four)
  assert.ok(four.rssKb <= one.rssKb * 1.15, `RSS grew from ${one.rssKb} to ${four.rssKb} kB`)
  assert.ok(
    four.files <= one.files + 2 && four.children <= one.children,
    `files ${one.files} to ${four.files}, children ${one.children} to ${four.children}`,
  )
}

function tell({ pods, agents, cluster }: Scene, watches: readonly Watch[]): void {
  say(figures(pods, agents, watches))
  for (const [i, one] of watches.entries()) {
    const quarters = one.quarters()
    say(
      `${cluster.nodes[i]?.name}: by quarters RSS ${quarters.map(({ rssKb }) => Math.round(rssKb / 1024)).join(' ')} MB, open files ${quarters.map(({ files }) => files).join(' ')}, children ${quarters.map(({ children }) => children).join(' ')}`,
    )
  }
}

function figures(pods: readonly Pods[], agents: readonly Agent[], watches: readonly Watch[]): string {
  const sum = (key: 'adds' | 'dels' | 'met') => pods.reduce((total, { count }) => total + count[key], 0)
  const wrong = pods.flatMap(({ count }) => count.wrong)
  const spread = (key: 'add' | 'del') => {
    const all = pods.flatMap(({ count }) => count.ms[key]).sort((a, b) => a - b)
    return [0.5, 0.99, 1]
      .map((part) => Math.round(all[Math.min(all.length - 1, Math.floor(all.length * part))] ?? 0))
      .join('/')
  }
  const repairs = agents.reduce((total, agent) => total + (agent.log().match(/put right/g)?.length ?? 0), 0)
  const size = watches.map((one) => Math.round((one.quarters()[3]?.rssKb ?? 0) / 1024)).join(' ')
  return `${sum('adds')} ADDs, ${sum('dels')} DELs, ${sum('met')} ADDs that met a deed, ${wrong.length} wrong; ADD ${spread('add')} ms, DEL ${spread('del')} ms (median/99 %/longest); ${repairs} repairs told of; RSS ${size} MB${wrong.length > 0 ? `\n${wrong.at(-1)}` : ''}`
}

function say(text: string): void {
  process.stdout.write(`soak: ${text}\n`)
}
