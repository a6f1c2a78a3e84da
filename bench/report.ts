import { readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'

const RESULTS = join(import.meta.dir, 'RESULTS.md')

/** A table of results: a sentence on how they came about, headings, rows, and the bars that were judged by them. */
export interface Table {
  readonly title: string
  readonly method: string
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
  readonly bars: readonly Bar[]
}
/** A wanted figure and what came out, against each of those it was compared with. */
export interface Bar {
  readonly text: string
  readonly met: boolean
}

/**
 * Judges figures by a bar. Met means met in all; the text says which were not: `≤ 1.2: missed (1.31 of reference
 * 1.1.1)`.
 */
export function judge(
  want: string,
  figures: readonly { readonly name: string; readonly figure: number; readonly met: boolean }[],
): Bar {
  const missed = figures.filter(({ met }) => !met).map(({ name, figure }) => `${short(figure)} ${name}`)
  return {
    met: missed.length === 0,
    text: missed.length === 0 ? `${want}: met` : `${want}: missed (${missed.join(', ')})`,
  }
}

/** A figure with three digits; a whole number as it is. */
export function short(figure: number): string {
  if (Number.isInteger(figure)) return String(figure)
  return figure >= 100 ? figure.toFixed(0) : figure >= 10 ? figure.toFixed(1) : figure.toFixed(2)
}

/** A table as Markdown, its columns aligned so that it reads well as it is. */
export function markdown({ title, method, head, rows }: Table): string {
  const all = [head, ...rows]
  const widths = head.map((_, i) => Math.max(3, ...all.map((row) => (row[i] ?? '').length)))
  const line = (row: readonly string[]) =>
    `| ${widths.map((width, i) => (i === 0 ? (row[i] ?? '').padEnd(width) : (row[i] ?? '').padStart(width))).join(' | ')} |`
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`
  return [`### ${title}`, '', method, '', line(head), rule, ...rows.map(line), ''].join('\n')
}

/** The command, the machine and the versions that figures belong to. */
export function circumstances(command: string, names: readonly string[]): string {
  const [cpu] = cpus()
  const version = (argv: string[]) => Bun.spawnSync(argv).stdout.toString().trim()
  const tools = [
    version(['ip', '-V']).replace(/^ip utility, /, ''),
    version(['nft', '-v']).replace(/ \(.*/, ''),
    version(['iptables', '-V']).replace(/^(iptables) v/, '$1 '),
  ]
  const load = readFileSync('/proc/loadavg', 'utf8').split(' ', 1)[0]
  return `\`${command}\` on ${cpus().length} × ${cpu?.model.trim()}, Linux ${version(['uname', '-r'])}, ${tools.join(', ')}, load ${load} at the start; ${names.join(' against ')}.`
}

/** Puts figures into bench/RESULTS.md, instead of those that stood there between the marks of this name. */
export function write(figures: string, name = 'figures'): void {
  const text = readFileSync(RESULTS, 'utf8')
  const [begin, end] = [`<!-- ${name} -->`, `<!-- end of ${name} -->`]
  const [before, after] = [text.indexOf(begin), text.indexOf(end)]
  if (before < 0 || after < before) throw new Error(`Cannot write ${RESULTS}: want the lines ${begin} and ${end} in it`)
  writeFileSync(RESULTS, `${text.slice(0, before)}${begin}\n\n${figures.trim()}\n\n${text.slice(after)}`)
}
