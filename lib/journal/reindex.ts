import { log } from '../os/log.ts'
import { leave, occupy } from '../os/turns.ts'
import { hold } from './elements.ts'
import { type Entry, entries, LINK, partName, partsOf, readEntry } from './journal.ts'
import { take } from './ports.ts'
import { share, sweep } from './shared.ts'

/**
 * Builds the index of shared things again from the entries, for a node on which a person has removed files. The entries
 * do not say which link holds the gateway of a VLAN. The next ADD of that network notes it. Leaves out an attachment
 * that a call is at work on: that call keeps its notes itself, and a note that a DEL has removed must not come back.
 */
export function reindex(): void {
  sweep()
  for (const entry of entries()) {
    const parts = [partName(LINK, entry.owner), ...partsOf(entry).map(([part]) => part)]
    const taken = parts.filter((part) => occupy(part, 0))
    const now = taken.length === parts.length ? readEntry(entry.owner) : undefined
    if (now) restore(now)
    for (const part of taken) leave(part)
  }
}

function restore(entry: Entry): void {
  for (const ip of entry.ips) share(`addresses/${ip}`, partName(LINK, entry.owner))
  const own = partsOf(entry).flatMap(([, part]) => part.own)
  hold(own.filter((one) => one.kind === 'element'))
  try {
    take(own.filter((one) => one.kind === 'claim'))
  } catch (cause) {
    log(`plumb: Cannot note a host port again: ${(cause as Error).message}`, { container: entry.owner.containerId })
  }
}
