import { writeSync } from 'node:fs'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'

// Error codes for a fault in a configuration or in the command line.
const GIVEN: readonly number[] = [CODE.version, CODE.unsupportedField, CODE.env, CODE.decode, CODE.config, CODE.netns]

// The exit status that a shell reports for a program that SIGPIPE ended.
const SIGPIPE_STATUS = 141

/** The error that a plugin would answer. plumb finds it without calling the plugin. */
export class Refused extends CniError {
  override name = 'Refused'
}

/**
 * Writes the whole text and a newline to stdout. Throws CniError 5 when stdout is closed or full, so that no reader
 * takes half an answer for the whole.
 */
export function print(text: string): void {
  write(`${text}\n`)
}

/**
 * Writes text or bytes to stdout without a newline, for example part of a line that shows progress. Throws like
 * `print`.
 */
export function write(text: string | Uint8Array): void {
  try {
    writeAll(1, text)
  } catch (cause) {
    // The reader, for example `| head`, closed the pipe. As for any tool, this is no failure to report.
    if ((cause as NodeJS.ErrnoException).code === 'EPIPE') process.exit(SIGPIPE_STATUS)
    throw new CniError(CODE.io, 'Cannot write to stdout', (cause as Error).message, { cause })
  }
}

/** How a text looks on a terminal. */
export interface Look {
  /** The width of the terminal. */
  readonly columns: number
  /** Whether words of severity have a colour. */
  readonly isColoured: boolean
}

const [RED, GREEN, YELLOW, PLAIN] = ['\x1b[31m', '\x1b[32m', '\x1b[33m', '\x1b[0m']
/** The words of severity, by their colour. */
const COLOURS: readonly (readonly [words: RegExp, colour: string])[] = [
  [/^(error|FAILED|LOST|DIFFERS)\b/, RED],
  [/^warning\b/, YELLOW],
  [/\bis not ready(?=:$)/, RED],
  [/\bis degraded(?=:$)/, YELLOW],
  [/\bis ready$/, GREEN],
]
/** A finding. The lines below it that are indented are commands, which are copied as they are. */
const FINDING = /^(error|warning) \w+: /

/**
 * Prints a text for people. On a terminal, lines fit its width and severity has a colour, unless NO_COLOR is set. A pipe
 * gets whole lines. Throws like `print`.
 */
export function printText(text: string): void {
  print(onScreen(text))
}

/** The text as `printText` prints it. Control characters in names and messages of others are escaped. */
export function onScreen(text: string): string {
  const { isTTY, columns } = process.stdout
  const plain = text.split('\n').map(printable).join('\n')
  return isTTY ? laidOut(plain, { columns: columns || 80, isColoured: !process.env['NO_COLOR'] }) : plain
}

/** Lays a text out for a terminal. Pure. */
export function laidOut(text: string, { columns, isColoured }: Look): string {
  let isCommand = false
  const lines = text.split('\n').flatMap((line) => {
    isCommand = FINDING.test(line) || (isCommand && line.startsWith(' '))
    const isWhole = isCommand && line.startsWith(' ')
    const [first = '', ...rest] = isWhole ? [line] : fitted(line, columns)
    return [isColoured ? coloured(first, line) : first, ...rest]
  })
  return lines.join('\n')
}

// Breaks a line between words. What follows stands below the last column of a table when there is room.
function fitted(line: string, columns: number): string[] {
  const indent = line.length - line.trimStart().length
  const column = Math.max(0, ...[...line.matchAll(/(?<=\S {2,})\S/g)].map(({ index }) => index))
  const hanging = column > 0 && column <= columns / 2 ? column : Math.min(indent + 2, columns / 2)
  const lines: string[] = []
  let rest = line
  while (rest.length > columns) {
    // A word that is longer than the line stays whole.
    const begin = lines.length === 0 ? indent : hanging
    const before = rest.lastIndexOf(' ', columns)
    const at = before > begin ? before : rest.indexOf(' ', Math.max(columns, begin))
    if (at < 0) break
    lines.push(rest.slice(0, at).trimEnd())
    rest = `${' '.repeat(hanging)}${rest.slice(at).trimStart()}`
  }
  return [...lines, rest]
}

// The words are looked for in the whole line.
function coloured(first: string, line: string): string {
  const [found] = COLOURS.filter(([words]) => words.test(line))
  if (!found) return first
  const [words, colour] = found
  const said = words.exec(line)?.[0] ?? ''
  return first.replace(said, `${colour}${said}${PLAIN}`)
}

/** Formats rows as columns that are two spaces apart, under their headings if there are any. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = headings.length > 0 ? [headings, ...rows] : rows
  const widths = (all[0] ?? []).map((_, i) => Math.max(...all.map((row) => (row[i] ?? '').length)))
  return all
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/**
 * Writes the error to stderr, and with `json` also a CNI error object to stdout. Returns the exit status. The status is
 * 2 when the command line or a configuration is at fault and nothing ran, else 1.
 */
export function fail(cause: unknown, json: boolean): 1 | 2 {
  const given = unknown(cause)
  const usage = cause instanceof ValueError && !needsRoot(given.message)
  const { code, message, details } = usage ? { ...given, code: CODE.config } : withoutRoot(given)
  const more = details.split('\n').filter(Boolean)
  const lines = usage ? [message] : [`error ${code}: ${message}`, ...more.map((line) => `  ${line}`)]
  try {
    writeAll(2, `${lines.map(printable).join('\n')}\n`)
    if (json) writeAll(1, `${JSON.stringify({ code, msg: message, details }, null, 4)}\n`)
  } catch {
    // No program reads the output. The exit status still reports the failure.
  }
  return usage || (cause instanceof Refused && GIVEN.includes(code)) ? 2 : 1
}

interface Told {
  readonly code: number
  readonly message: string
  readonly details: string
}

function unknown(cause: unknown): Told {
  const { message } = cause as Error
  return cause instanceof CniError ? cause : { code: CODE.internal, message, details: '' }
}

/** Whether the kernel refused this because the user is not root. */
export function needsRoot(text: string): boolean {
  const isRefused = /\b(EACCES|EPERM|errno 1|errno 13)\b|Operation not permitted|Permission denied/i.test(text)
  return isRefused && process.getuid?.() !== 0
}

// What the kernel said comes last: it names a file or a call, and not what to do.
function withoutRoot(told: Told): Told {
  const said = [told.message, told.details].filter(Boolean).join(': ')
  return needsRoot(said)
    ? { code: CODE.env, message: 'This command needs root', details: `run it with sudo (${said})` }
    : told
}

function writeAll(fd: number, text: string | Uint8Array): void {
  const bytes = typeof text === 'string' ? Buffer.from(text) : text
  for (let done = 0; done < bytes.length; ) {
    try {
      done += writeSync(fd, bytes, done)
    } catch (cause) {
      // The reader made the pipe non-blocking, and the pipe is full for now.
      if ((cause as NodeJS.ErrnoException).code !== 'EAGAIN') throw cause
      Bun.sleepSync(1)
    }
  }
}
