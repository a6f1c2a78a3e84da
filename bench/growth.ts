import { addAndDel, type Call } from './call.ts'
import { median, paired } from './paired.ts'
import type { Bench } from './part.ts'
import { type Bar, judge, short, type Table } from './report.ts'
import { preread, type Side } from './sides.ts'

/** How the cost of calls grows with what is there already. */
export interface Growth {
  readonly title: string
  readonly method: string
  /** What there is more and more of, and how much of it at each level; the first is 0. */
  readonly unit: string
  readonly levels: readonly number[]
  readonly times: number
  /** The call of a side at a level, everything made ready for it. */
  readonly prepare: (side: Side, level: number) => Call | Promise<Call>
  /** The share of the rounds that a reference takes part in at a level, where it is slow. */
  readonly share: (level: number) => number
  /** At these levels and for these verbs, plumb must not take more than so many times what it takes at the first. */
  readonly bar: { readonly most: number; readonly verbs: readonly string[]; readonly levels: readonly number[] }
}

/** Measures every side at every level, all in one run. */
export async function growth(
  bench: Bench,
  { title, method, unit, levels, times, prepare, share, bar }: Growth,
): Promise<Table> {
  const sides = [bench.ours, ...bench.theirs]
  const things: { side: Side; level: number; call: Call; share: number }[] = []
  for (const level of levels)
    for (const side of sides)
      things.push({ side, level, call: await prepare(side, level), share: side.ours ? 1 : share(level) })
  for (const side of sides) preread(side)
  const samples = paired(things, bench.times(times), ({ call }, round) => addAndDel(call, `c${round}`))
  const figures = (side: Side, level: number, verb: number) =>
    (samples.get(things.find((one) => one.side === side && one.level === level) as (typeof things)[number]) ?? []).map(
      (both) => both[verb]?.ms ?? Number.NaN,
    )
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const [verb, name] of ['ADD', 'DEL'].entries()) {
    for (const level of levels) {
      const ms = (side: Side, at = level) => median(figures(side, at, verb))
      const grown = ms(bench.ours) / ms(bench.ours, levels[0])
      const judged =
        bar.verbs.includes(name) && bar.levels.includes(level)
          ? judge(`≤ ${bar.most} × empty`, [{ name: '×', figure: grown, met: grown <= bar.most }])
          : undefined
      if (judged) bars.push(judged)
      const counts = sides.map((side) => figures(side, level, verb).length).join('/')
      rows.push([
        `${name} at ${level.toLocaleString('en')}`,
        counts,
        ...sides.flatMap((side) => [short(ms(side)), short(ms(side) / ms(side, levels[0]))]),
        ...bench.theirs.map((side) => short(ms(bench.ours) / ms(side))),
        judged?.text ?? '',
      ])
    }
  }
  const head = [
    `call, ${unit}`,
    'n',
    ...sides.flatMap(({ name }) => [name, '× empty']),
    ...bench.theirs.map(({ name }) => `ratio to ${name.replace('reference ', '')}`),
    'bar',
  ]
  return { title, method, head, rows, bars }
}
