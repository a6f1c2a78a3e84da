import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { Entry } from '../../lib/journal/journal.ts'
import { digest } from '../../lib/text/digest.ts'

/** Where plumb's journal lies, with all that belongs to it. */
export const JOURNAL = '/run/cni/plumb'
const ENTRIES = `${JOURNAL}/attachments`
const PORTS = `${JOURNAL}/shared/ports`

/** The entries of all attachments that can be read. */
export function entries(): Entry[] {
  return names(ENTRIES).map((name) => JSON.parse(readFileSync(`${ENTRIES}/${name}`, 'utf8')))
}

/**
 * The container ids of the attachments that a plugin of this type noted something for; `link` is the interface
 * plugin's.
 */
export function noted(type: string): string[] {
  return entries().flatMap(({ owner, parts }) => (parts[type] ? [owner.containerId] : []))
}

/** The host ports that are claimed: `tcp-8080`. */
export function ports(): string[] {
  return names(PORTS)
}

/** Who has claimed them, and on which addresses: a text to compare. */
export function claims(): string {
  return existsSync(PORTS) ? readdirSync(PORTS, { recursive: true }).sort().join('\n') : ''
}

/** Writes an entry as plumb would, or removes it. */
export function rewrite(containerId: string, change: (entry: Entry) => Entry | undefined): void {
  for (const name of names(ENTRIES).filter((one) => one.includes(`:${containerId}:`))) {
    const path = `${ENTRIES}/${name}`
    const { sum: _, ...entry } = JSON.parse(readFileSync(path, 'utf8'))
    const after = change(entry)
    const text = JSON.stringify(after)
    if (after) writeFileSync(path, `${text.slice(0, -1)},"sum":"${digest(text)}"}`)
    else rmSync(path)
  }
}

function names(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir).sort() : []
}
