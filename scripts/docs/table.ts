/** Formats a Markdown table. Each column is as wide as its widest cell. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [headings, ...rows].map((row) => headings.map((_, i) => (row[i] ?? '').replaceAll('|', '\\|')))
  const widths = headings.map((_, i) => Math.max(3, ...cells.map((row) => width(row[i]))))
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, i) => cell + ' '.repeat((widths[i] as number) - width(cell))).join(' | ')} |`
  const [head = [], ...rest] = cells
  return [line(head), `| ${widths.map((one) => '-'.repeat(one)).join(' | ')} |`, ...rest.map(line)].join('\n')
}

/** Reads the rows of every table in a text, headings first. Cells have no spaces around them. */
export function tables(text: string): string[][][] {
  return [...text.matchAll(/^\|.*\|\n\| *-.*\|\n(?:\|.*\|(?:\n|$))*/gm)].map(([found]) =>
    found
      .trimEnd()
      .split('\n')
      .filter((_, i) => i !== 1)
      .map((row) =>
        row
          .slice(1, -1)
          .split(/(?<!\\)\|/)
          .map((cell) => cell.trim().replaceAll('\\|', '|')),
      ),
  )
}

function width(text = ''): number {
  return [...text].length
}
