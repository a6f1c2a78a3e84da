import { printable } from '../text/printable.ts'
import { fs } from './fs.ts'

/** How much an event matters. */
export type Level = 'info' | 'warning' | 'error'
type Fields = Readonly<Record<string, string | number>>

// Makes a line of an event. The runtime that calls a plugin adds the time.
let lineOf = (fact: string, _level: Level): string => fact

/** Sets how a program that goes on for long writes its lines. */
export function formatLog(format: typeof lineOf): void {
  lineOf = format
}

/**
 * Writes an event as a line on stderr: the fact, then `key=value` pairs. stdout is for the CNI protocol. Never throws.
 */
export function log(fact: string, fields: Fields = {}): void {
  write(fact, fields, 'info')
}

/** The same for something that does not work, and that the program goes on without. */
export function warn(fact: string, fields: Fields = {}): void {
  write(fact, fields, 'warning')
}

/** The same for what ends the program. */
export function fail(fact: string): void {
  write(fact, {}, 'error')
}

function write(fact: string, fields: Fields, level: Level): void {
  const pairs = Object.entries(fields).map(
    ([key, value]) => ` ${key}=${/[\s"]/.test(String(value)) ? JSON.stringify(value) : value}`,
  )
  try {
    fs.writeAllSync(2, `${lineOf(printable(`${fact}${pairs.join('')}`), level)}\n`)
  } catch {
    // A closed or full stderr must not fail the call.
  }
}
