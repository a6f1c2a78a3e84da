import { table, tables } from './table.ts'

/** A table of docs/differences.md: the heading above it, its columns and its rows. */
interface Part {
  readonly heading: string
  readonly columns: readonly string[]
  readonly rows: readonly Row[]
}
/**
 * A row of a table. `id` and `plugin` come from columns of these names, if the table has them. `cells` are the other
 * cells. The first cell names the subject of the row.
 */
export interface Row {
  readonly id: string | undefined
  readonly plugin: string | undefined
  readonly cells: readonly string[]
}
/**
 * What a page says about itself. Rows name the page by `type` or by `keys`. `marked` has the ids of rows that the
 * page's marker adds, or leaves out with a `-`.
 */
export interface Subject {
  readonly type: string
  readonly keys: readonly string[]
  readonly marked: readonly string[]
}

/** Reads the tables of docs/differences.md. */
export function readDifferences(text: string): Part[] {
  return text
    .split(/^## /m)
    .flatMap((section, i) =>
      tables(section).map((found) => ({ heading: i === 0 ? '' : (section.split('\n')[0] as string), found })),
    )
    .map(({ heading, found: [columns = [], ...rows] }) => {
      const shown = <T>(cells: readonly T[]) => cells.filter((_, i) => !NAMING.includes(columns[i] ?? ''))
      const cell = (row: readonly string[], column: string) => row[columns.indexOf(column)]?.replaceAll('`', '')
      return {
        heading,
        columns: shown(columns),
        rows: rows.map((row) => ({ id: cell(row, 'id'), plugin: cell(row, 'plugin'), cells: shown(row) })),
      }
    })
}

// Columns that name the plugin of a row. On the page of that plugin they are not needed.
const NAMING = ['id', 'plugin']

/**
 * Chooses the rows of each page. A page shows the rows that name its plugin, by type or else by a key at the beginning.
 * It also shows the rows that its marker adds. Rows that are on no page are common to all, under the name ''. The rows
 * in `common` are there too.
 */
export function share(
  parts: readonly Part[],
  subjects: readonly Subject[],
  common: readonly string[],
): ReadonlyMap<string, readonly Row[]> {
  const shared = new Map<string, Row[]>(['', ...subjects.map(({ type }) => type)].map((type) => [type, []]))
  for (const { heading, rows } of parts)
    for (const row of rows) {
      const owners = subjects.filter((subject) => isAbout(row, heading, subject, subjects))
      for (const { type } of owners) shared.get(type)?.push(row)
      if (owners.length === 0 || common.includes(row.id ?? '')) shared.get('')?.push(row)
    }
  return shared
}

/** Formats the chosen rows as tables, under the columns of docs/differences.md. */
export function differencesText(parts: readonly Part[], chosen: readonly Row[]): string {
  const found = parts
    .map(({ columns, rows }) => ({ columns, rows: rows.filter((row) => chosen.includes(row)) }))
    .filter(({ rows }) => rows.length > 0)
  return found
    .map(({ columns, rows }) =>
      table(
        columns,
        rows.map(({ cells }) => cells),
      ),
    )
    .join('\n\n')
}

function isAbout(
  { id = '', plugin, cells: [where = ''] }: Row,
  heading: string,
  { type, keys, marked }: Subject,
  all: readonly Subject[],
): boolean {
  if (id !== '' && marked.includes(`-${id}`)) return false
  if (id !== '' && marked.includes(id)) return true
  if (plugin !== undefined) return isIn(type, plugin)
  const names = [
    (one: string) => id.startsWith(`${one}-`) || isIn(one, where),
    (one: string) => isIn(one, heading),
  ].find((told) => all.some((one) => told(one.type)))
  if (names) return names(type)
  // The cell must begin with a key. A cell such as "route `mtu`" is not about a key of the plugin itself.
  return where.startsWith('`') && keys.some((key) => where.includes(`\`${key}\``))
}

function isIn(word: string, text: string): boolean {
  return new RegExp(`(?<![\\w/.-])${word}(?![\\w/-])`).test(text)
}
