import { mkdirSync, renameSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { CALLS } from '../../lib/verbs/report.ts'
import { type Call, call } from '../call.ts'
import { bridgeConf, makeNode } from '../node.ts'
import { median, medianRange, paired } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'

const TRACE = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
/** How much longer an ADD may take because of the agent, in milliseconds. */
const MOST = { counted: 0.2, traced: 1 } as const
const AWAY = `${CALLS}.away`

/** What it costs an ADD to tell the agent of itself. */
export async function spans(bench: Bench): Promise<Table> {
  mkdirSync(dirname(CALLS), { recursive: true })
  const heard = join(import.meta.dir, '../../agent/telemetry/calls.ts')
  const script = `const { Calls } = await import(${JSON.stringify(heard)}); await new Calls(() => {}).listen(${JSON.stringify(CALLS)}); console.log('ready')`
  const agent = Bun.spawn([process.execPath, '-e', script], { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
  await agent.stdout.getReader().read()
  const one: Call = { side: bench.ours, type: 'bridge', ...makeNode(), conf: bridgeConf(bench.dataDir(), false) }
  const kinds = [
    { name: 'no agent', isHeard: false },
    { name: 'counted', isHeard: true },
    { name: 'traced', isHeard: true, trace: TRACE },
  ] as const
  try {
    const samples = paired(kinds, bench.times(150), (kind, round) => {
      const { isHeard } = kind
      const asked = 'trace' in kind ? { ...one, trace: kind.trace } : one
      if (!isHeard) renameSync(CALLS, AWAY)
      try {
        return [call(asked, 'ADD', `s${round}`)]
      } finally {
        if (!isHeard) renameSync(AWAY, CALLS)
        call(one, 'DEL', `s${round}`)
      }
    })
    const of = (kind: (typeof kinds)[number]) => (samples.get(kind) ?? []).map(([add]) => add?.ms ?? Number.NaN)
    const alone = of(kinds[0])
    const bars: Bar[] = []
    const rows = kinds.map((kind) => {
      const more = of(kind).map((ms, round) => ms - (alone[round] ?? Number.NaN))
      const row = [kind.name, `${more.length}`, short(median(of(kind)))]
      if (kind.name === 'no agent') return [...row, '', '', '']
      const [figure, limit] = [median(more), MOST[kind.name]]
      const bar = judge(`≤ ${limit} ms`, [{ name: 'ms', figure, met: figure <= limit }])
      bars.push(bar)
      return [...row, short(figure), medianRange(more).map(short).join(' to '), bar.text]
    })
    return {
      title: 'What it costs an ADD to tell the agent of itself',
      method:
        'bridge, in ms. No agent: nobody listens. Counted: a call tells the agent how it went. Traced: it has TRACEPARENT, and tells its phases and tools, too. The three take turns; more than without an agent: the median of the rounds’ differences, and where it lies, 95 % sure.',
      head: ['call', 'n', 'ADD', 'more', '95 % sure', 'bar'],
      rows,
      bars,
    }
  } finally {
    agent.kill()
    await agent.exited
  }
}
