import type { Cell } from './table.ts'

/** A round trip in milliseconds as a cell. Empty without one. */
export function msCell(ms: number | null | undefined): Cell {
  if (ms === undefined || ms === null) return ''
  const text = ms < 1 ? `${Math.round(ms * 1000)} µs` : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
  return { text, value: ms }
}

/** Lost probes of all as a cell. Empty without probes. */
export function lostCell(lost = 0, sent = 0): Cell {
  return sent === 0 ? '' : { text: `${lost} of ${sent}`, value: lost / sent }
}

/** A count as a cell. Empty when it is not known. */
export function countCell(count: number | undefined): Cell {
  return count === undefined ? '' : { text: `${count}`, value: count }
}

/** A time of day as a cell, with the date when it is another day. Empty without one. */
export function timeCell(at: number | undefined, now: number): Cell {
  if (at === undefined) return ''
  const [time, today] = [new Date(at), new Date(now)]
  const clock = time.toTimeString().slice(0, 8)
  const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`
  return { text: time.toDateString() === today.toDateString() ? clock : `${date} ${clock}`, value: at }
}

function two(value: number): string {
  return `${value}`.padStart(2, '0')
}

/** Pairs of a name and a value as lines, aligned. Pairs without a value are left out. */
export function factLines(facts: readonly (readonly [name: string, value: string | undefined])[]): string[] {
  const known = facts.flatMap(([name, value]) => (value === undefined || value === '' ? [] : [[name, value] as const]))
  const width = Math.max(0, ...known.map(([name]) => name.length))
  return known.map(([name, value]) => `${name.padEnd(width)}  ${value}`)
}

/** Lines below a title, after an empty line. Nothing without lines. */
export function titled(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)]
}
