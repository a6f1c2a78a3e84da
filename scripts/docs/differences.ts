import { table, tables } from './table.ts'

/** A table of docs/differences.md: the heading that it stands under, and its rows. */
interface Part {
  readonly heading: string
  readonly columns: readonly string[]
  readonly rows: readonly Row[]
}
/** A row: its id and the plugin it is about, where it has columns for them, and the other cells, the first of which says what it is about. */
export interface Row {
  readonly id: string | undefined
  readonly plugin: string | undefined
  readonly cells: readonly string[]
}
/** What a page says of itself: the words by which rows name it, and the ids that its marker adds, or with a `-` leaves out. */
export interface Subject {
  readonly type: string
  readonly keys: readonly string[]
  readonly marked: readonly string[]
}

/** The tables of docs/differences.md. */
export function readDifferences(text: string): Part[] {
  return text
    .split(/^## /m)
    .flatMap((section, i) => tables(section).map((found) => ({ heading: i === 0 ? '' : (section.split('\n')[0] as string), found })))
    .map(({ heading, found: [columns = [], ...rows] }) => {
      const shown = <T>(cells: readonly T[]) => cells.filter((_, i) => !NAMING.includes(columns[i] ?? ''))
      const cell = (row: readonly string[], column: string) => row[columns.indexOf(column)]?.replaceAll('`', '')
      return { heading, columns: shown(columns), rows: rows.map((row) => ({ id: cell(row, 'id'), plugin: cell(row, 'plugin'), cells: shown(row) })) }
    })
}

// Columns that say whose a row is; on that one's page they say nothing.
const NAMING = ['id', 'plugin']

/** Which rows each page shows: those that name its plugin, by type or else by beginning with keys of it, and those that its marker adds. What is on none is common to all, under ''. */
export function share(parts: readonly Part[], subjects: readonly Subject[], common: readonly string[]): ReadonlyMap<string, readonly Row[]> {
  const shared = new Map<string, Row[]>(['', ...subjects.map(({ type }) => type)].map((type) => [type, []]))
  for (const { heading, rows } of parts)
    for (const row of rows) {
      const owners = subjects.filter((subject) => isAbout(row, heading, subject, subjects))
      for (const { type } of owners) shared.get(type)?.push(row)
      if (owners.length === 0 || common.includes(row.id ?? '')) shared.get('')?.push(row)
    }
  return shared
}

/** The chosen rows as tables, under the columns they have in docs/differences.md. */
export function differencesText(parts: readonly Part[], chosen: readonly Row[]): string {
  const found = parts.map(({ columns, rows }) => ({ columns, rows: rows.filter((row) => chosen.includes(row)) })).filter(({ rows }) => rows.length > 0)
  return found
    .map(({ columns, rows }) =>
      table(
        columns,
        rows.map(({ cells }) => cells),
      ),
    )
    .join('\n\n')
}

function isAbout({ id = '', plugin, cells: [where = ''] }: Row, heading: string, { type, keys, marked }: Subject, all: readonly Subject[]): boolean {
  if (id !== '' && marked.includes(`-${id}`)) return false
  if (id !== '' && marked.includes(id)) return true
  if (plugin !== undefined) return isIn(type, plugin)
  const names = [(one: string) => id.startsWith(`${one}-`) || isIn(one, where), (one: string) => isIn(one, heading)].find((told) => all.some((one) => told(one.type)))
  if (names) return names(type)
  // "route `mtu`" is not about a plugin's own key.
  return where.startsWith('`') && keys.some((key) => where.includes(`\`${key}\``))
}

function isIn(word: string, text: string): boolean {
  return new RegExp(`(?<![\\w/.-])${word}(?![\\w/-])`).test(text)
}
