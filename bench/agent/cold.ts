import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { type Contender, type Fixture, missing, type Network, type Running } from './fixture.ts'
import type { Usage } from './process.ts'

/** What an agent took from its start to its last entry. */
interface Cold extends Usage {
  readonly ms: number
  /** What it asked of etcd meanwhile, by method. */
  readonly asked: { readonly ranges: number; readonly watches: number; readonly perLease: number; readonly all: number }
}
interface Scene extends Network {
  readonly times: number
  /** How often others take part. */
  readonly others: number
  readonly limitMs: number
  judge(all: readonly Cold[]): Bar[]
}
/** Agents that were left running, with all their peers. */
export interface Started {
  readonly prefix: string
  readonly network: Network
  readonly agent: Running
}

// What an agent does right after its last entry is its own, too.
const AFTER_MS = 300
const LIMIT_MS = 120_000

/** Agents on a node that has nothing, in a network that has many nodes. The last ones by vxlan are left running. */
export async function cold(bench: Bench, fixture: Fixture): Promise<{ table: Table; started: readonly Started[] }> {
  const started: Started[] = []
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const scene of scenes(bench)) {
    const all = await play(fixture, scene, scene.backend === 'vxlan' ? started : undefined)
    for (const [contender, seen] of all) {
      const judged = contender.ours ? scene.judge(seen) : []
      bars.push(...judged)
      rows.push(row(`${scene.backend}, ${scene.leases.toLocaleString('en')} leases, ${contender.name}`, seen, judged))
    }
  }
  const method = `A node of its own with nothing on it; foreign leases in a real etcd. Time from the agent's start to the last route; CPU of the agent and of all that it starts (its monitors among them, but for what is judged as in ip), until ${AFTER_MS} ms after that; the most memory that the agent's own process held; what it asked of etcd by etcd's own count, with its own lease. Medians, of memory and of requests the most; n rounds, the agents in turn.${missing(fixture)}`
  return {
    table: {
      title: 'The agent: cold start among many nodes',
      method,
      head: [
        'network',
        'n',
        'seconds',
        'CPU s of the agent',
        'of its children',
        'MB at most',
        'ranges',
        'watches',
        'per lease',
        'all requests',
        'bar',
      ],
      rows,
      bars,
    },
    started,
  }
}

function scenes(bench: Bench): Scene[] {
  const times = bench.times(3)
  const many = bench.times(4000) < 4000 ? 1000 : 4000
  const of = (all: readonly Cold[], what: 'own' | 'children' | 'ended') => median(all.map((one) => one[what])) / 1000
  return [
    {
      backend: 'host-gw',
      leases: many,
      times,
      others: 1,
      limitMs: LIMIT_MS,
      judge: (all) => [most('≤ 1 s in all', median(all.map(together)) / 1000, 1, 's')],
    },
    {
      backend: 'host-gw',
      leases: 20_000,
      times,
      others: 0,
      limitMs: LIMIT_MS,
      judge: (all) => [most('≤ 1 s in ip', of(all, 'ended'), 1, 's')],
    },
    {
      backend: 'vxlan',
      leases: 10_000,
      times,
      others: 1,
      limitMs: LIMIT_MS,
      judge: (all) => [
        most('agent ≤ 2 s', of(all, 'own'), 2, 's'),
        most('children ≤ 2 s', of(all, 'children'), 2, 's'),
        most('≤ 120 MB', peak(all), 120, 'MB'),
        // It may ask about its own.
        most(
          '0 requests per foreign lease',
          Math.round(Math.max(...all.map(({ asked }) => asked.perLease)) / 10_000),
          0,
          'requests',
        ),
        most('1 watch', Math.max(...all.map(({ asked }) => asked.watches)), 1, 'watches'),
      ],
    },
  ]
}

async function play(fixture: Fixture, scene: Scene, started: Started[] | undefined): Promise<Map<Contender, Cold[]>> {
  const taking = fixture.contenders.filter(({ ours }) => ours || scene.others > 0)
  const prefixes = new Map<Contender, string>()
  for (const one of taking) prefixes.set(one, await fixture.populate(scene))
  const all = new Map<Contender, Cold[]>(taking.map((one) => [one, []]))
  for (let round = 1; round <= scene.times; round++)
    for (const contender of taking) {
      const times = contender.ours ? scene.times : scene.others
      if (round > times) continue
      const prefix = prefixes.get(contender) as string
      const { agent, cost } = await once(fixture, contender, prefix, scene)
      all.get(contender)?.push(cost)
      if (started && round === times) started.push({ prefix, network: scene, agent })
      else await agent.stop()
    }
  return all
}

async function once(
  fixture: Fixture,
  contender: Contender,
  prefix: string,
  { leases, limitMs }: Scene,
): Promise<{ agent: Running; cost: Cold }> {
  const { etcd } = fixture
  const methods = ['Range', 'Watch', 'LeaseTimeToLive', '[^"]*']
  const counts = () => Promise.all(methods.map((method) => etcd.calls(method)))
  const before = await counts()
  const agent = await fixture.start(contender, prefix)
  const ms = (await agent.reached(leases, limitMs)) ?? Number.POSITIVE_INFINITY
  await Bun.sleep(AFTER_MS)
  const used = agent.usage()
  const [ranges = 0, watches = 0, perLease = 0, all = 0] = (await counts()).map(
    (count, i) => count - (before[i] as number),
  )
  return { agent, cost: { ms, ...used, asked: { ranges, watches, perLease, all } } }
}

function together({ own, children }: Cold): number {
  return own + children
}

function peak(all: readonly Cold[]): number {
  return Math.max(...all.map(({ peak }) => peak))
}

function row(name: string, all: readonly Cold[], bars: readonly Bar[]): string[] {
  const seconds = (what: (one: Cold) => number) => short(median(all.map(what)) / 1000)
  const asked = (what: keyof Cold['asked']) => Math.max(...all.map(({ asked }) => asked[what])).toLocaleString('en')
  return [
    name,
    String(all.length),
    seconds(({ ms }) => ms),
    seconds(({ own }) => own),
    seconds(({ children }) => children),
    short(peak(all)),
    asked('ranges'),
    asked('watches'),
    asked('perLease'),
    asked('all'),
    bars.map(({ text }) => text).join('; '),
  ]
}

/** A bar that a figure must not pass. */
export function most(want: string, figure: number, limit: number, unit: string): Bar {
  return judge(want, [{ name: unit, figure, met: figure <= limit }])
}
