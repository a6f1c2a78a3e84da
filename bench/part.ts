import type { Bar, Table } from './report.ts'
import { judge, short } from './report.ts'
import type { Side } from './sides.ts'

/** What a part of the bench works with. */
export interface Bench {
  readonly ours: Side
  readonly theirs: readonly Side[]
  /** How often to repeat: the wanted number, or with --quick a fifth of it. */
  times(wanted: number): number
  /** The part of the budget that is measured. */
  readonly budget: BudgetWish
  /** A new folder on disk for a pool's reservations. */
  dataDir(): string
}
/** What the command line wants of the budget. */
export interface BudgetWish {
  /** Writes what plumb takes into bench/budget.json. */
  readonly isWritten: boolean
  /** A text that the names of the paths hold; undefined for all paths and the plugin calls. */
  readonly paths: string | undefined
  /** Arguments of plumb's agent. With some, plumb is measured with and without them. */
  readonly flags: readonly string[]
}
/** A part of the bench: it measures and gives a table, or several. */
export type Part = (bench: Bench) => Table | Promise<Table | readonly Table[]>

/**
 * Ratios to each reference as cells, and the bar they are judged by, when there is one: each has to be at most `most`.
 */
export function ratios(
  own: number,
  references: readonly { readonly name: string; readonly figure: number }[],
  most?: number,
): { cells: string[]; bar: Bar | undefined } {
  const all = references.map(({ name, figure }) => ({ name, figure: own / figure }))
  const bar =
    most === undefined
      ? undefined
      : judge(
          `≤ ${most}`,
          all.map(({ name, figure }) => ({ name: `of ${name}`, figure, met: figure <= most })),
        )
  return { cells: all.map(({ figure }) => short(figure)), bar }
}
