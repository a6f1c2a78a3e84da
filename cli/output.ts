import { writeSync } from 'node:fs'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'

// What of a refusal is the fault of a configuration or of the command line.
const GIVEN: readonly number[] = [CODE.version, CODE.unsupportedField, CODE.env, CODE.decode, CODE.config, CODE.netns]

// What a shell says of a tool that SIGPIPE ended.
const SIGPIPE_STATUS = 141

/** What a plugin would refuse a call with, told without calling it. */
export class Refused extends CniError {
  override name = 'Refused'
}

/** Writes text and a newline to stdout, whole. Throws CniError 5 when stdout is closed or full, so that nobody takes half an answer for all of it. */
export function print(text: string): void {
  write(`${text}\n`)
}

/** Writes text to stdout as it is: part of a line, to show what is going on. Throws as print. */
export function write(text: string): void {
  try {
    writeAll(1, text)
  } catch (cause) {
    // `| head` has seen enough: as for any tool, that is no failure to tell of.
    if ((cause as NodeJS.ErrnoException).code === 'EPIPE') process.exit(SIGPIPE_STATUS)
    throw new CniError(CODE.io, 'Cannot write to stdout', (cause as Error).message, { cause })
  }
}

/** Rows in columns two blanks apart, under their headings when there are any. */
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

/** Tells what went wrong on stderr, with `json` also as a CNI error object on stdout, and gives the exit status: 2 when the command line or a configuration is at fault and nothing was run, else 1. */
export function fail(cause: unknown, json: boolean): 1 | 2 {
  const usage = cause instanceof ValueError
  const { code, details } = cause instanceof CniError ? cause : { code: usage ? CODE.config : CODE.internal, details: '' }
  const { message } = cause as Error
  const needsRoot = process.getuid?.() !== 0 && /\b(EACCES|EPERM)\b|Operation not permitted|Permission denied/i.test(`${message} ${details}`)
  const lines = usage
    ? [message]
    : [
        `error ${code}: ${message}`,
        ...details
          .split('\n')
          .filter(Boolean)
          .map((line) => `  ${line}`),
      ]
  if (needsRoot) lines.push('  this needs root: run it with sudo')
  try {
    writeAll(2, `${lines.map(printable).join('\n')}\n`)
    if (json) writeAll(1, `${JSON.stringify({ code, msg: message, details }, null, 4)}\n`)
  } catch {
    // Nobody listens; the exit status still tells.
  }
  return usage || (cause instanceof Refused && GIVEN.includes(code)) ? 2 : 1
}

function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text)
  for (let done = 0; done < bytes.length; ) {
    try {
      done += writeSync(fd, bytes, done)
    } catch (cause) {
      // A pipe that its reader made non-blocking, and that is full for now.
      if ((cause as NodeJS.ErrnoException).code !== 'EAGAIN') throw cause
      Bun.sleepSync(1)
    }
  }
}
