// The screen as lines of text, and what a terminal needs to get from one screen to the next. Pure.
import { printable } from '../../lib/text/printable.ts'
import { KEYS, placeOf, type State } from './state.ts'
import { cellText, chosen, type Line, type Table } from './table.ts'

/** What is shown at one moment. */
export interface Watched {
  /** Who is looked at: `node-a`, or `300 nodes`. */
  readonly title: string
  /** How it is. */
  readonly sentence: string
  readonly tone: Line['tone']
  readonly tables: Readonly<Record<State['view'], Table>>
  /** When the newest answer came, in milliseconds since 1970. Absent before the first one. */
  readonly at?: number
}
/** The size of the terminal in characters. */
export interface Size {
  readonly columns: number
  readonly rows: number
}

const [BOLD, DIM, REVERSE, RESET] = ['\x1b[1m', '\x1b[2m', '\x1b[7m', '\x1b[0m']
const COLORS = { good: '', warning: '\x1b[33m', error: '\x1b[31m' } as const
const SIGNS = { good: ' ', warning: '▲', error: '✕' } as const
/** The most lines that the sentence takes. */
const SENTENCE_LINES = 3
const [LEAST_COLUMNS, LEAST_ROWS] = [20, 6]
/** A column but the last is at most this wide. What is cut is whole in the details. */
const WIDEST = 34

/** The number of rows of a table that fit below the head. */
export function pageOf(watched: Watched, size: Size): number {
  return Math.max(1, size.rows - headOf(watched, size.columns).length - 2)
}

/** The first line that is shown at the end of the help, or of everything about one row. */
export function lastScroll(state: State, watched: Watched, { columns, rows }: Size): number {
  const lines = aloneLines(state, watched.tables[state.view], columns) ?? []
  return Math.max(0, lines.length - (rows - 1))
}

/** Draws the screen: exactly `rows` lines, none longer than `columns`. */
export function draw(state: State, watched: Watched, { columns, rows }: Size, isColored: boolean): string[] {
  if (columns < LEAST_COLUMNS || rows < LEAST_ROWS) return filled([cutTo('the terminal is too small', columns)], rows)
  const color = (tone: Line['tone'], text: string) =>
    isColored && COLORS[tone] ? `${COLORS[tone]}${text}${RESET}` : text
  const table = watched.tables[state.view]
  const lines = chosen(table, state)
  const foot = cutTo(footOf(state, lines.length, table.lines.length), columns)
  const room = rows - 1
  const alone = aloneLines(state, table, columns)
  if (alone) return [...filled(scrolled(alone, state.scroll, room), room), foot]
  const [title = '', ...sentence] = headOf(watched, columns)
  const view = `${state.view}${state.isPaused ? ', paused' : ''}`
  const head = [
    `${BOLD}${cutTo(`${title}  ${view}`, columns)}${RESET}`,
    ...sentence.map((text) => color(watched.tone, text)),
  ]
  const widths = widthsOf(table, lines, columns - 2)
  const page = room - head.length - 1
  const { place } = placeOf(
    state,
    lines.map(({ key }) => key),
  )
  const first = Math.max(0, Math.min(place - Math.floor(page / 2), lines.length - page))
  const body = lines.slice(first, first + page).map((line, i) => {
    const text = cutTo(`${SIGNS[line.tone]} ${rowText(line.cells.map(cellText), widths)}`, columns)
    return first + i === place ? `${REVERSE}${padTo(text, columns)}${RESET}` : color(line.tone, text)
  })
  const headings = table.headings.map((text, i) => (i === state.column ? `${text}${state.isDown ? '▼' : '▲'}` : text))
  const empty = lines.length > 0 ? [] : [emptyWords(state, table)]
  return [
    ...filled([...head, `${DIM}${cutTo(`  ${rowText(headings, widths)}`, columns)}${RESET}`, ...body, ...empty], room),
    foot,
  ]
}

/** What turns the screen `before` into `after`: only the lines that differ are sent, as one update. */
export function difference(before: readonly string[], after: readonly string[]): string {
  const changes = after.flatMap((line, i) => (before[i] === line ? [] : [`\x1b[${i + 1};1H${line}\x1b[K`]))
  return changes.length === 0 ? '' : `\x1b[?2026h${changes.join('')}\x1b[?2026l`
}

/** A table as plain text, for `--once`. */
export function tableText(table: Table): string[][] {
  return table.lines.map(({ tone, cells }) => [SIGNS[tone], ...cells.map(cellText)])
}

function headOf({ title, sentence, at }: Watched, columns: number): string[] {
  const clock = at === undefined ? '' : `  ${new Date(at).toTimeString().slice(0, 8)}`
  const lines = wrapped(printable(sentence), columns)
  const shown = lines.slice(0, SENTENCE_LINES)
  if (lines.length > SENTENCE_LINES) shown.push(cutTo(`${shown.pop()} …${' '.repeat(columns)}`, columns))
  return [`plumb top  ${printable(title)}${clock}`, ...shown]
}

function footOf({ input, message, search, isProblemsOnly, isHelp, open }: State, shown: number, all: number): string {
  if (input) return `${input.sign}${input.text}█`
  if (message !== '') return message
  if (isHelp || open !== undefined) return 'Esc back   j k scroll   q back'
  const count = shown === all ? `${all}` : `${shown} of ${all}`
  const filters = [...(search === '' ? [] : [`/${search}`]), ...(isProblemsOnly ? ['problems only'] : [])]
  return `${count}${filters.length > 0 ? ` (${filters.join(', ')})` : ''}   ? help   / search   : view   ! problems   Enter more   q quit`
}

function emptyWords({ search, isProblemsOnly }: State, table: Table): string {
  if (table.lines.length === 0) return `  ${table.empty}`
  return search === '' && isProblemsOnly ? '  no problem here' : '  nothing has these words; Esc shows all'
}

// The help, or everything about one row. It is shown instead of the table.
function aloneLines({ isHelp, open }: State, table: Table, columns: number): string[] | undefined {
  if (isHelp) return helpLines(columns)
  const line = open === undefined ? undefined : table.lines.find(({ key }) => key === open)
  if (!line) return undefined
  const texts = line.details().flatMap((text) => wrapped(printable(text), columns))
  return [`${BOLD}${cutTo(printable(line.key), columns)}${RESET}`, '', ...texts]
}

function helpLines(columns: number): string[] {
  const width = Math.max(...KEYS.map(([keys]) => keys.length))
  return ['Keys', '', ...KEYS.map(([keys, about]) => cutTo(`${keys.padEnd(width)}   ${about}`, columns))]
}

function scrolled(lines: readonly string[], scroll: number, room: number): readonly string[] {
  const first = Math.max(0, Math.min(scroll, lines.length - room))
  return lines.slice(first, first + room)
}

function widthsOf({ headings }: Table, lines: readonly Line[], columns: number): number[] {
  const widths = headings.map((heading, i) => {
    const texts = lines.map(({ cells }) => Bun.stringWidth(cellText(cells[i])))
    const isLast = i === headings.length - 1
    // One more for the sign of a sorted column.
    const widest = texts.reduce((most, width) => Math.max(most, width), heading.length + 1)
    return isLast ? widest : Math.min(WIDEST, widest)
  })
  const others = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0)
  return [...widths.slice(0, -1), Math.max(0, columns - others)]
}

function rowText(texts: readonly string[], widths: readonly number[]): string {
  return texts
    .map((text, i) => padTo(cutTo(text, widths[i] ?? 0), widths[i] ?? 0))
    .join('  ')
    .trimEnd()
}

function filled(lines: readonly string[], rows: number): string[] {
  return Array.from({ length: rows }, (_, i) => lines[i] ?? '')
}

function padTo(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - Bun.stringWidth(text)))
}

/** Cuts a text without escapes to so many columns of the terminal. */
function cutTo(text: string, columns: number): string {
  if (Bun.stringWidth(text) <= columns) return text
  return `${headOfText(text, columns - 1)}…`
}

function wrapped(text: string, columns: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`
    if (Bun.stringWidth(longer) <= columns) line = longer
    else {
      if (line !== '') lines.push(line)
      line = word
      while (Bun.stringWidth(line) > columns) {
        const head = headOfText(line, columns)
        lines.push(head)
        line = line.slice(head.length)
      }
    }
  }
  return [...lines, line]
}

// The beginning of a text that is so wide, at least one sign of it.
function headOfText(text: string, columns: number): string {
  let [kept, width] = ['', 0]
  for (const sign of text) {
    width += Bun.stringWidth(sign)
    if (width > columns && kept !== '') break
    kept += sign
  }
  return kept
}
