import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'
import { most } from './cold.ts'
import { missing, type Running, type Store } from './fixture.ts'
import type { Accounting, Usage } from './process.ts'

interface Idle {
  readonly cpu: number
  readonly started: number | undefined
  readonly used: Usage
}
// Until what came with the start is over.
const SETTLE_MS = 5000

/** Agents that have nothing to do. */
export async function idle(
  bench: Bench,
  fixture: Store,
  agents: readonly Running[],
  leases: number,
  accounting: Accounting,
): Promise<Table> {
  const seconds = bench.times(60)
  await Bun.sleep(SETTLE_MS)
  const before = agents.map((agent) => look(agent, accounting))
  await Bun.sleep(seconds * 1000)
  const bars: Bar[] = []
  const rows = agents.map((agent, i) => {
    const { cpu, started, used } = since(before[i] as ReturnType<typeof look>, look(agent, accounting), seconds)
    const judged = agent.contender.ours
      ? [
          ...(started === undefined
            ? []
            : [judge('0 processes', [{ name: 'a minute', figure: started, met: started === 0 }])]),
          most('≤ 0.3 % of a core', cpu, 0.3, '%'),
          most('≤ 64 MB', used.rss, 64, 'MB'),
        ]
      : []
    bars.push(...judged)
    return [
      agent.contender.name,
      started === undefined ? 'not counted' : short(started),
      short(cpu),
      short(used.rss),
      judged.map(({ text }) => text).join('; '),
    ]
  })
  return {
    title: `The agent: idle, with ${leases} peers`,
    method: `vxlan, ${seconds} s after the start is over, both agents at once. Processes that it started and that have ended, by the kernel's accounting (acct); CPU of the agent and of all that it starts (its monitors among them), by clock ticks of 10 ms; memory of the agent's own process.${missing(fixture)}`,
    head: ['agent', 'processes a minute', 'CPU, % of a core', 'MB', 'bar'],
    rows,
    bars,
  }
}

function look(agent: Running, accounting: Accounting): { readonly used: Usage; readonly ended: number | undefined } {
  return { used: agent.usage(), ended: accounting.endedOf(agent.pid) }
}

function since(before: ReturnType<typeof look>, after: ReturnType<typeof look>, seconds: number): Idle {
  const ms = after.used.own + after.used.children - before.used.own - before.used.children
  const ended = before.ended === undefined || after.ended === undefined ? undefined : after.ended - before.ended
  return { cpu: ms / seconds / 10, started: ended === undefined ? undefined : (ended * 60) / seconds, used: after.used }
}
