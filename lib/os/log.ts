import { printable } from '../text/printable.ts'
import { fs } from './fs.ts'

/** Writes one event as one line on stderr: the fact, then `key=value` pairs. stdout is reserved for the CNI protocol. Never throws. */
export function log(fact: string, fields: Readonly<Record<string, string | number>> = {}): void {
  const pairs = Object.entries(fields).map(([key, value]) => ` ${key}=${/[\s"]/.test(String(value)) ? JSON.stringify(value) : value}`)
  try {
    fs.writeAllSync(2, `${printable(`${fact}${pairs.join('')}`)}\n`)
  } catch {
    // A closed or full stderr must not fail the call.
  }
}
