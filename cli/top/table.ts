// Rows of a view: which ones are shown, and in which order. Pure.
import { printable } from '../../lib/text/printable.ts'

/** A cell: its text, and the number by which it is sorted when the text does not sort well. */
export type Cell = string | { readonly text: string; readonly value: number }
/** A row of a view. */
export interface Line {
  /** The same for the same thing from one look to the next. */
  readonly key: string
  readonly cells: readonly Cell[]
  /** `good` rows are hidden when only problems are shown. */
  readonly tone: 'good' | 'warning' | 'error'
  /** What is shown of it alone: everything, in whole lines. Made when somebody looks. */
  readonly details: () => readonly string[]
}
/** A view as a table. */
export interface Table {
  readonly headings: readonly string[]
  /** In the order that needs no choice: what is worst comes first. */
  readonly lines: readonly Line[]
  /** What stands there when it has no line. */
  readonly empty: string
}
/** What somebody wants to see of a table. */
export interface Choice {
  /** Words that a row has all. `!word` must not be in it. `heading:word` is looked for in one column. */
  readonly search: string
  readonly isProblemsOnly: boolean
  /** The column to sort by. Undefined for the order of the table. */
  readonly column: number | undefined
  readonly isDown: boolean
}

const collator = new Intl.Collator('en', { numeric: true })

/** The text of a cell, without control characters: names come from other programs. */
export function cellText(cell: Cell | undefined): string {
  return printable(typeof cell === 'object' ? cell.text : (cell ?? ''))
}

/** The lines of a table that somebody wants to see, in the order that they want. */
export function chosen(
  { headings, lines }: Table,
  { search, isProblemsOnly, column, isDown }: Choice,
): readonly Line[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  const found = lines.filter(
    (line) => (!isProblemsOnly || line.tone !== 'good') && words.every((word) => hasWord(headings, line, word)),
  )
  if (column === undefined) return found
  const sign = isDown ? -1 : 1
  return found.sort((a, b) => sign * compare(a.cells[column], b.cells[column]))
}

function hasWord(headings: readonly string[], { cells }: Line, word: string): boolean {
  if (word.startsWith('!')) return word === '!' || !hasWord(headings, { cells } as Line, word.slice(1))
  const [, name = '', wanted = ''] = /^([^:]+):(.*)$/.exec(word) ?? []
  const column = headings.findIndex((heading) => heading.toLowerCase() === name)
  const texts = column < 0 ? cells : [cells[column]]
  return texts.some((cell) =>
    cellText(cell)
      .toLowerCase()
      .includes(column < 0 ? word : wanted),
  )
}

// Empty cells come last in both directions of no number, and numbers before texts.
function compare(a: Cell | undefined, b: Cell | undefined): number {
  if (typeof a === 'object' && typeof b === 'object') return a.value - b.value
  if (typeof a === 'object') return -1
  if (typeof b === 'object') return 1
  return collator.compare(a ?? '', b ?? '')
}
