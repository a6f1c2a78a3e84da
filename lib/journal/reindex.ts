import { log } from '../os/log.ts'
import { hold } from './elements.ts'
import { entries, LINK, partName, partsOf } from './journal.ts'
import { take } from './ports.ts'
import { share, sweep } from './shared.ts'

/**
 * Builds the index of shared things again from the entries, for a node on which a person has removed files. The entries do not say
 * which link holds the gateway of a VLAN. The next ADD of that network notes it.
 */
export function reindex(): void {
  sweep()
  for (const entry of entries()) {
    for (const ip of entry.ips) share(`addresses/${ip}`, partName(LINK, entry.owner))
    const own = partsOf(entry).flatMap(([, part]) => part.own)
    hold(own.filter((one) => one.kind === 'element'))
    try {
      take(own.filter((one) => one.kind === 'claim'))
    } catch (cause) {
      log(`plumb: Cannot note a host port again: ${(cause as Error).message}`, { container: entry.owner.containerId })
    }
  }
}
