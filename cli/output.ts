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
  const usage = cause instanceof ValueError
  const { code, details } =
    cause instanceof CniError ? cause : { code: usage ? CODE.config : CODE.internal, details: '' }
  const { message } = cause as Error
  const isRefused = /\b(EACCES|EPERM)\b|Operation not permitted|Permission denied/i.test(`${message} ${details}`)
  const more = details.split('\n').filter(Boolean)
  const lines = usage ? [message] : [`error ${code}: ${message}`, ...more.map((line) => `  ${line}`)]
  if (isRefused && process.getuid?.() !== 0) lines.push('  this needs root: run it with sudo')
  try {
    writeAll(2, `${lines.map(printable).join('\n')}\n`)
    if (json) writeAll(1, `${JSON.stringify({ code, msg: message, details }, null, 4)}\n`)
  } catch {
    // No program reads the output. The exit status still reports the failure.
  }
  return usage || (cause instanceof Refused && GIVEN.includes(code)) ? 2 : 1
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
