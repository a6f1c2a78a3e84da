import { accessOf } from '../../agent/cluster/access.ts'
import { Api } from '../../agent/cluster/api.ts'
import { Collection } from '../../agent/cluster/collection.ts'
import { projectNode } from '../../agent/store/kube/node.ts'
import { missingApiServer } from '../../test/support/kube-apiserver.ts'
import { most, type Started } from '../agent/cold.ts'
import { missing, type Running } from '../agent/fixture.ts'
import { idle } from '../agent/idle.ts'
import { joining } from '../agent/joining.ts'
import { type KubeFixture, openKubeFixture } from '../agent/kube.ts'
import { account, type Usage } from '../agent/process.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'

const [MANY, FEW] = [5000, 100]
const [AFTER_MS, LIMIT_MS] = [300, 180_000]

/**
 * The agent that keeps its lease in Kubernetes, beside flanneld in kube mode: among five thousand Nodes, and among a
 * hundred.
 */
export async function kube(bench: Bench): Promise<Table[]> {
  const why = missingApiServer()
  if (why !== undefined)
    return [
      { title: 'The agent in a Kubernetes cluster', method: `Not measured: ${why}.`, head: [], rows: [], bars: [] },
    ]
  const fixture = await openKubeFixture(bench)
  try {
    // Few first: Nodes only become more.
    await fixture.grow(FEW)
    const tables = [await quiet(bench, fixture)]
    const many = bench.times(MANY) < MANY ? 1000 : MANY
    await fixture.grow(many)
    const { table, started } = await cold(bench, fixture, many)
    tables.push(
      table,
      await joining(bench, fixture, started, 'the API server'),
      await beating(bench, fixture, started, many),
    )
    return tables
  } finally {
    await fixture.close()
  }
}

async function quiet(bench: Bench, fixture: KubeFixture): Promise<Table> {
  const accounting = account(`${bench.dataDir()}/processes`)
  const agents: Running[] = []
  for (const contender of fixture.contenders) {
    const agent = await fixture.start(contender)
    await agent.reached(FEW, 20_000)
    agents.push(agent)
  }
  const table = await idle(bench, fixture, agents, FEW, accounting)
  accounting.stop()
  await Promise.all(agents.map((agent) => agent.stop()))
  return { ...table, title: `The agent in a Kubernetes cluster: idle, with ${FEW} peers` }
}

/** How long the agent's client takes for the list of all Nodes by itself, in seconds. */
async function listing({ api }: KubeFixture, times: number): Promise<number> {
  const client = new Api(accessOf({ kubeconfig: api.kubeconfig }), 'bench')
  const seen: number[] = []
  for (let i = 0; i < times; i++) {
    const nodes = new Collection(client, {
      path: '/api/v1/nodes',
      project: (raw) => projectNode(raw, 'flannel.alpha.coreos.com/', 'bench'),
    })
    const started = performance.now()
    await nodes.list(AbortSignal.timeout(LIMIT_MS))
    seen.push((performance.now() - started) / 1000)
  }
  return median(seen)
}

async function cold(
  bench: Bench,
  fixture: KubeFixture,
  count: number,
): Promise<{ table: Table; started: readonly Started[] }> {
  const times = bench.times(3)
  const list = await listing(fixture, times)
  const started: Started[] = []
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const contender of fixture.contenders) {
    const seen: (Usage & { ms: number })[] = []
    for (let round = 1; round <= (contender.ours ? times : 1); round++) {
      const agent = await fixture.start(contender)
      const ms = (await agent.reached(count, LIMIT_MS)) ?? Number.POSITIVE_INFINITY
      await Bun.sleep(AFTER_MS)
      seen.push({ ms, ...agent.usage() })
      if (round === (contender.ours ? times : 1))
        started.push({ prefix: '', network: { backend: 'vxlan', leases: count }, agent })
      else await agent.stop()
    }
    const of = (what: (one: Usage & { ms: number }) => number) => median(seen.map(what))
    const peak = Math.max(...seen.map((one) => one.peak))
    const judged = contender.ours
      ? [
          most('≤ 2 s after the list', of(({ ms }) => ms) / 1000 - list, 2, 's'),
          most('agent ≤ 1.5 s CPU', of(({ own }) => own) / 1000, 1.5, 's'),
          most('≤ 140 MB', peak, 140, 'MB'),
        ]
      : []
    bars.push(...judged)
    rows.push([
      contender.name,
      String(seen.length),
      short(of(({ ms }) => ms) / 1000),
      short(of(({ own }) => own) / 1000),
      short(of(({ children }) => children) / 1000),
      short(peak),
      judged.map(({ text }) => text).join('; '),
    ])
  }
  const method = `Nodes of 12 kB in a real kube-apiserver, vxlan. Time from the agent's start, with the list in it, to the last route; the list alone takes the agent's client ${short(list)} s; CPU of the agent and of what it starts until ${AFTER_MS} ms after that; the most memory that the agent's own process held.${missing(fixture)}`
  return {
    table: {
      title: `The agent in a Kubernetes cluster: cold start among ${count.toLocaleString('en')} Nodes`,
      method,
      head: ['agent', 'n', 'seconds', 'CPU s of the agent', 'of its children', 'MB at most', 'bar'],
      rows,
      bars,
    },
    started,
  }
}

// Every Node's kubelet writes its status once a minute.
async function beating(
  bench: Bench,
  { api, ...fixture }: KubeFixture,
  started: readonly Started[],
  count: number,
): Promise<Table> {
  const seconds = bench.times(60)
  const agents = started.map(({ agent }) => agent)
  const before = agents.map((agent) => agent.usage())
  const began = performance.now()
  const under = new Set<Promise<void>>()
  for (let n = 0; n < (count * seconds) / 60; n++) {
    const due = began + (n * 60_000) / count
    if (due > performance.now()) await Bun.sleep(due - performance.now())
    const beat: Promise<void> = api.heartbeat(`node-${n % count}`).finally(() => under.delete(beat))
    under.add(beat)
  }
  await Promise.all(under)
  const took = performance.now() - began
  const bars: Bar[] = []
  const rows = agents.map((agent, i) => {
    const [was, is] = [before[i] as Usage, agent.usage()]
    const [own, children] = [((is.own - was.own) / took) * 100, ((is.children - was.children) / took) * 100]
    const judged = agent.contender.ours
      ? [most('≤ 1 % of a core', own, 1, '%'), most('0 steps', is.ended - was.ended, 0, 'ms of tools')]
      : []
    bars.push(...judged)
    return [
      agent.contender.name,
      short(own),
      short(children),
      short(is.ended - was.ended),
      judged.map(({ text }) => text).join('; '),
    ]
  })
  return {
    title: `The agent in a Kubernetes cluster: ${count.toLocaleString('en')} heartbeats a minute`,
    method: `Each Node's status is written once a minute, for ${seconds} s; no lease changes. CPU of the agent, of all that it starts, and of the tools among that which have ended, in ms: a step would start one.${missing(fixture)}`,
    head: ['agent', 'CPU, % of a core', 'of its children, %', 'ms of tools that ended', 'bar'],
    rows,
    bars,
  }
}
