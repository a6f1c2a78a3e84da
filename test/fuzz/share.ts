import { appendFileSync } from 'node:fs'

/** What came of the cases of one target. */
export interface Figures {
  ok: number
  refused: number
  slowest: number
}

// Of those that are asked for: a call through `serve` is what a runtime does, an input one reader's, a process the
// whole. A pair of processes compares the two engines. A history of isolation takes seconds.
const SHARES = { serve: 0.1, inputs: 0.796, executable: 0.002, engine: 0.1, isolation: 0.002 } as const
const USUAL: Readonly<Record<keyof typeof SHARES, number>> = {
  serve: 20_000,
  inputs: 8000,
  executable: 286,
  engine: 160,
  isolation: 12,
}

/**
 * How many cases a part of the fuzzer has to go through: its share of PLUMB_FUZZ_CASES, else what fits into `npm test`.
 */
export function casesOf(part: keyof typeof SHARES): number {
  const wanted = process.env['PLUMB_FUZZ_CASES']
  return wanted === undefined ? USUAL[part] : Math.ceil(Number(wanted) * SHARES[part])
}

/**
 * How long a part of a file's cases may take. A busy machine gets through fewer of the usual cases. Cases that are
 * asked for are all run, unless PLUMB_FUZZ_MINUTES limits the time of the file.
 */
export function budgetOf(usualMs: number, part = 1): number {
  const { PLUMB_FUZZ_CASES: cases, PLUMB_FUZZ_MINUTES: minutes } = process.env
  if (minutes) return Number(minutes) * 60_000 * part
  return cases ? Number.POSITIVE_INFINITY : usualMs * part
}

/** Notes for the summary, where one is wanted (PLUMB_FUZZ_FIGURES names its file), and says it. */
export function tell(target: string, { ok, refused, slowest }: Figures, failures: number): void {
  const line = { target, cases: ok + refused, answered: ok, refused, slowestMs: Math.round(slowest), failures }
  console.log(`fuzz: ${JSON.stringify(line)}`)
  if (process.env['PLUMB_FUZZ_FIGURES']) appendFileSync(process.env['PLUMB_FUZZ_FIGURES'], `${JSON.stringify(line)}\n`)
}

/** Processor time since `process.cpuUsage()`, in milliseconds: the machine may have other things to do. */
export function spent(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since)
  return (user + system) / 1000
}
