import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'
import { most, type Started } from './cold.ts'
import { foreign, missing, type Store } from './fixture.ts'
import { watch } from './kernel.ts'
import { percentile } from './repair.ts'

// What came before is over.
const PAUSE_MS = 150
const LIMIT_MS = 5000
const WANT_MS = 50

/** One more node appears among those that there are. */
export async function joining(
  bench: Bench,
  fixture: Store,
  started: readonly Started[],
  where = 'etcd',
): Promise<Table> {
  const times = bench.times(30)
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const [i, one] of started.entries()) {
    // In a cluster all agents see the same Nodes.
    const seen = await joins(fixture, one, one.network.leases + 10 + i * times, times)
    const judged = one.agent.contender.ours ? [most(`median ≤ ${WANT_MS} ms`, median(seen), WANT_MS, 'ms')] : []
    bars.push(...judged)
    rows.push([
      one.agent.contender.name,
      String(times),
      short(median(seen)),
      short(percentile(seen, 0.9)),
      judged.map(({ text }) => text).join('; '),
    ])
  }
  return {
    title: `The agent: one more node among ${started[0]?.network.leases.toLocaleString('en')}`,
    method: `vxlan. From the moment at which its lease is sent to ${where}, so that the work of ${where} is in it, until the kernel tells of the last of its neighbour, forwarding entry and route; in ms, ${PAUSE_MS} ms after the one before.${missing(fixture)}`,
    head: ['agent', 'n', 'median', '90 %', 'bar'],
    rows,
    bars,
  }
}

async function joins(
  { join }: Store,
  { agent, prefix, network }: Started,
  first: number,
  times: number,
): Promise<number[]> {
  const watcher = watch(agent.node)
  const seen: number[] = []
  for (let i = 0; i < times; i++) {
    const n = first + i
    const { subnet, gateway, mac } = foreign(n)
    const left = new Set([`route ${subnet}`, `neigh ${gateway}`, `fdb ${mac}`])
    watcher.quiet(PAUSE_MS)
    const sent = performance.now()
    await join(prefix, network.backend, n)
    const last = watcher.until(({ what, gone }) => !gone && left.delete(what) && left.size === 0, LIMIT_MS)
    seen.push((last ?? Number.POSITIVE_INFINITY) - sent)
  }
  watcher.close()
  return seen
}
