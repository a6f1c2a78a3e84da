// This folder holds what `plumb help PLUGIN` needs. Begin with cli/help.ts, the command.
// pages.ts holds the pages, read.ts reads them during the build, and this file formats a page.
/** The layout of a text: the width in columns, and whether headings are bold. */
export interface Look {
  readonly columns: number
  readonly isBold: boolean
}

/**
 * Formats a page of docs/ for a terminal. Wraps paragraphs and table cells, leaves code as it is, and shows only the
 * words of a link. Knows only the Markdown that those pages use.
 */
export function terminal(markdown: string, look: Look): string {
  return blocksOf(markdown)
    .map((block) => shown(block, look))
    .filter((text) => text !== '')
    .join('\n\n')
}

// Splits the page at empty lines. A code block stays whole.
function blocksOf(markdown: string): string[] {
  return markdown
    .replace(/<!--[\s\S]*?-->/g, '')
    .split(/^(```\w*\n[\s\S]*?^```)$/m)
    .flatMap((part) => (part.startsWith('```') ? [part] : part.split(/\n\s*\n/)))
    .map((block) => block.replace(/^\n+|\s+$/g, ''))
    .filter((block) => block !== '')
}

function shown(block: string, look: Look): string {
  if (block.startsWith('```'))
    return block
      .split('\n')
      .slice(1, -1)
      .join('\n')
      .replace(/^(?=.)/gm, '    ')
  const [, level = '', title = ''] = /^(#+) (.*)$/.exec(block) ?? []
  if (level) return heading(level === '#' ? plain(title) : plain(title).toUpperCase(), look)
  if (block.startsWith('|')) return table(rowsOf(block), look)
  return block
    .split(/\n(?=[-*] )/)
    .map((one) => item(one, look))
    .join('\n')
}

function heading(title: string, { isBold }: Look): string {
  return isBold ? `\u001b[1m${title}\u001b[22m` : title
}

function item(text: string, { columns }: Look): string {
  const [, mark = '', rest = ''] = /^([-*] )?([\s\S]*)$/.exec(text) ?? []
  return `${mark}${wrapped(plain(rest), columns - mark.length).join(`\n${' '.repeat(mark.length)}`)}`
}

function rowsOf(block: string): string[][] {
  const rows = block.split('\n').filter((row) => !/^\| *-/.test(row))
  return rows.map((row) =>
    row
      .slice(1, -1)
      .split(/(?<!\\)\|/)
      .map((cell) => plain(cell.trim().replaceAll('\\|', '|'))),
  )
}

function table(rows: readonly (readonly string[])[], look: Look): string {
  const widths = widthsOf(rows, look.columns - 2 * ((rows[0]?.length ?? 1) - 1))
  const lines = rows.map((row) => inColumns(row, widths))
  const [head = '', ...rest] = lines
  return [heading(head, look), ...rest].join(rest.some((text) => text.includes('\n')) ? '\n\n' : '\n')
}

function inColumns(row: readonly string[], widths: readonly number[]): string {
  const cells = row.map((cell, i) => wrapped(cell, widths[i] as number))
  const height = Math.max(...cells.map(({ length }) => length))
  return Array.from({ length: height }, (_, line) =>
    cells
      .map((cell, i) => (cell[line] ?? '').padEnd(widths[i] as number))
      .join('  ')
      .trimEnd(),
  ).join('\n')
}

/**
 * Gives each column the width that it needs, as long as there is room. A column that needs more than an equal share of
 * the remaining width gets that share.
 */
function widthsOf(rows: readonly (readonly string[])[], columns: number): number[] {
  const wanted = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)))
  const widths: number[] = []
  let [left, open] = [columns, wanted.length]
  for (const i of wanted
    .keys()
    .toArray()
    .sort((a, b) => (wanted[a] as number) - (wanted[b] as number))) {
    widths[i] = Math.max(1, Math.min(wanted[i] as number, Math.floor(left / open)))
    left -= widths[i]
    open--
  }
  return widths
}

// Breaks a text into lines of at most `columns` characters.
function wrapped(text: string, columns: number): string[] {
  const lines = ['']
  for (const word of text.split(/\s+/).flatMap((one) => broken(one, columns))) {
    const last = lines.at(-1) as string
    if (last === '') lines[lines.length - 1] = word
    else if (last.length + 1 + word.length <= columns) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines
}

// Splits a word that is longer than a line. Prefers to split before a dot, so that a key stays readable.
function broken(word: string, columns: number): string[] {
  const parts: string[] = []
  for (const part of word
    .split(word.length > columns ? /(?=\.)/ : /$/)
    .flatMap((one) => one.match(new RegExp(`.{1,${columns}}`, 'g')) ?? [])) {
    const last = parts.at(-1)
    if (last !== undefined && last.length + part.length <= columns) parts[parts.length - 1] = last + part
    else parts.push(part)
  }
  return parts
}

function plain(text: string): string {
  return text
    .replace(/\[([^\]]+)\]\([^)]*\)/g, '$1')
    .replace(/\*\*([^*]+)\*\*/g, '$1')
    .replaceAll('`', '')
}
