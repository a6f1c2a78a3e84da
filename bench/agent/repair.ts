import { inside } from '../../lib/os/netns.ts'
import { median } from '../paired.ts'
import { type Bar, short, type Table } from '../report.ts'
import { run } from '../tools.ts'
import { most } from './cold.ts'
import { type Fixture, foreign, missing, type Running } from './fixture.ts'
import { type Watcher, watch } from './kernel.ts'

/** Deletes by hand what an agent made: the command, what the kernel tells of it, and when it is there again. */
interface Deletion {
  readonly name: string
  argv(n: number): string[]
  what(n: number): string
  /** What has to be there again besides, from a certain number of foreign nodes on. */
  readonly routes?: number
}
/** How often things are deleted: the link, and all else. */
interface Times {
  readonly link: number
  readonly other: number
}

// What an agent puts right twenty times in ten seconds it takes for a fight, and rightly so.
const ROUND_MS = 2000
// What came before is over: the kernel is silent for so long, and the agent does nothing meanwhile.
const PAUSE_MS = 100
const LIMIT_MS = 10_000
const DEV = 'flannel.1'
const ALL = 'link, and all that stood on it'

/** Deletes by hand one thing after the other, round by round, and waits until the agent has put it right. */
export async function repair(
  fixture: Fixture,
  agent: Running,
  leases: number,
  times: Times,
  limit: number,
  theirs: readonly string[],
): Promise<Table> {
  const watcher = watch(agent.node)
  const deletions = ours(agent, leases)
  const seen = new Map<Deletion, number[]>(deletions.map((one) => [one, []]))
  for (let round = 0; round < times.other; round++) {
    const until = performance.now() + ROUND_MS
    for (const one of deletions) {
      if (one.routes !== undefined && round >= times.link) continue
      seen.get(one)?.push(once(watcher, agent, one, (round * 7) % leases))
    }
    await Bun.sleep(Math.max(0, until - performance.now()))
  }
  watcher.close()
  const bars: Bar[] = []
  const rows = deletions.map((one) => {
    const all = seen.get(one) ?? []
    // The bar is for what was deleted: how long the rest takes is shown.
    const judged = one.routes ? [] : [most(`p99 ≤ ${limit} ms`, percentile(all, 0.99), limit, 'ms')]
    bars.push(...judged)
    return [
      one.name,
      String(all.length),
      short(median(all)),
      short(percentile(all, 0.99)),
      ...(theirs.length > 0
        ? [theirs.find((said) => said.startsWith(`${one.name}: `))?.slice(one.name.length + 2) ?? '']
        : []),
      judged.map(({ text }) => text).join('; '),
    ]
  })
  return {
    title: `The agent: what somebody deletes, with ${leases.toLocaleString('en')} peers`,
    method: `vxlan. From the kernel's word that it is gone, after ip, bridge or nft deleted it by hand, until its word that it is there again; in ms, p99 by rank, n times in turn.${theirs.length > 0 ? ' flanneld: one try of each.' : leases > 1000 ? '' : missing(fixture)}`,
    head: ['deleted', 'n', 'median', 'p99', ...(theirs.length > 0 ? ['flanneld'] : []), 'bar'],
    rows,
    bars,
  }
}

/** What flanneld puts right, each tried once within so many milliseconds: a phrase for each. */
export function repairOf(agent: Running, leases: number, waitMs: number): string[] {
  const told = [
    ...wiring(agent, leases).filter(({ name }) => ['route', 'neighbour', 'forwarding entry'].includes(name)),
    { name: 'rule', argv: () => ['iptables', '-w', '-t', 'nat', '-D', 'FLANNEL-POSTRTG', '1'], what: () => 'rule nat' },
    ...wiring(agent, leases).filter(({ name }) => name === 'address'),
  ]
  const phrases = [
    ...tried(agent, told, waitMs),
    ...tried(
      agent,
      wiring(agent, leases).filter(({ routes }) => routes === 0),
      waitMs,
    ),
  ]
  const routes = inside(agent.node, () => run(['ip', '-4', 'route', 'show'])).match(/^10\.\S+\/24 /gm)?.length ?? 0
  return [...phrases, `${ALL}: ${routes} of ${leases} routes after ${waitMs / 1000} s`]
}

/** The figure below which lies such a share of all, by rank. */
export function percentile(figures: readonly number[], share: number): number {
  const sorted = [...figures].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}

function wiring(agent: Running, leases: number): Deletion[] {
  const own = `${agent.subnet()}.0/32`
  const link = { argv: () => ['ip', 'link', 'delete', DEV], what: () => `link ${DEV}` }
  return [
    {
      name: 'route',
      argv: (n) => ['ip', 'route', 'delete', foreign(n).subnet],
      what: (n) => `route ${foreign(n).subnet}`,
    },
    {
      name: 'neighbour',
      argv: (n) => ['ip', 'neigh', 'delete', foreign(n).gateway, 'dev', DEV],
      what: (n) => `neigh ${foreign(n).gateway}`,
    },
    {
      name: 'forwarding entry',
      argv: (n) => ['bridge', 'fdb', 'delete', foreign(n).mac, 'dev', DEV, 'self'],
      what: (n) => `fdb ${foreign(n).mac}`,
    },
    { name: 'address', argv: () => ['ip', 'address', 'delete', own, 'dev', DEV], what: () => `addr ${own}` },
    { name: 'link', ...link, routes: 0 },
    { name: ALL, ...link, routes: leases },
  ]
}

function ours(agent: Running, leases: number): Deletion[] {
  const nft = (text: string) => ['nft', ...text.split(' ')]
  const ask = (text: string) => inside(agent.node, () => run(nft(text)))
  const [, table = ''] = /inet (plumb_agent\S*)/.exec(ask('list tables inet')) ?? []
  const rule = () => /saddr .* # handle (\d+)/.exec(ask(`-a list chain inet ${table} postrouting`))?.[1]
  return [
    ...wiring(agent, leases),
    {
      name: 'rule',
      argv: () => nft(`delete rule inet ${table} postrouting handle ${rule()}`),
      what: () => `rule ${table}`,
    },
    {
      name: 'set element',
      argv: () => nft(`delete element inet ${table} network4 { 10.128.0.0/9 }`),
      what: () => `element ${table}`,
    },
  ]
}

function once(watcher: Watcher, agent: Running, { name, argv, what, routes = 0 }: Deletion, n: number): number {
  settle(watcher, agent)
  const { node, contender } = agent
  const command = argv(n)
  const child = inside(node, () => Bun.spawn(command, { stdin: 'ignore', stdout: 'ignore', stderr: 'inherit' }))
  const wanted = what(n)
  const gone = watcher.until((one) => one.gone && one.what === wanted, LIMIT_MS)
  if (gone === undefined)
    throw new Error(`${command.join(' ')} deleted nothing on the node of ${contender.name} (${name})`)
  let [isBack, left] = [false, routes]
  const back = watcher.until((one) => {
    if (one.gone) return false
    if (one.what === wanted) isBack = true
    if (one.what.startsWith('route 10.')) left--
    return isBack && left <= 0
  }, LIMIT_MS)
  child.unref()
  return (back ?? Number.POSITIVE_INFINITY) - gone
}

// Until the kernel is silent, and the agent and its children do nothing.
function settle(watcher: Watcher, { usage }: Running): void {
  const spent = () => {
    const { own, children } = usage()
    return own + children
  }
  const end = performance.now() + LIMIT_MS
  for (let before = Number.NEGATIVE_INFINITY; spent() > before && performance.now() < end; watcher.quiet(PAUSE_MS))
    before = spent()
}

function tried({ node }: Running, deletions: readonly Deletion[], waitMs: number): string[] {
  const watcher = watch(node)
  const back = new Map<string, number>()
  const [gone, begin] = [new Set<string>(), performance.now()]
  for (const [i, one] of deletions.entries()) inside(node, () => run(one.argv(i)))
  watcher.until((one) => {
    if (one.gone) gone.add(one.what)
    else if (gone.has(one.what) && !back.has(one.what)) back.set(one.what, performance.now() - begin)
    return back.size === deletions.length
  }, waitMs)
  watcher.close()
  return deletions.map((one, i) => {
    const ms = back.get(one.what(i))
    return `${one.name}: ${ms === undefined ? `not within ${waitMs / 1000} s` : `${short(ms)} ms`}`
  })
}
