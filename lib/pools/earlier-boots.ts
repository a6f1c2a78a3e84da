import { entries } from '../journal/journal.ts'
import { fs } from '../os/fs.ts'
import { addressesHere } from '../os/link-addresses.ts'
import { log } from '../os/log.ts'
import { inEach } from '../os/netns.ts'
import { readText } from '../os/reading.ts'
import type { Ip } from '../text/ip.ts'
import { type Holder, holderOf, names, type Place } from './reservations.ts'

// A reboot ends every network namespace, but it does not empty host-local's directory. When the runtime has forgotten its containers, nobody
// sends DEL for their addresses.

/**
 * The reservations that were made before this boot, and that nobody has now. The time of the file alone does not decide, because a clock may
 * be wrong. A reservation counts as long as the journal has an attachment of the container, or a namespace of this node has the address. Empty
 * when a namespace cannot be looked into. The caller holds the pool's lock.
 */
export function ofEarlierBoots(place: Place): ReadonlyMap<Ip, Holder> {
  const boot = bootNs()
  const found = new Map<Ip, Holder>()
  for (const name of boot === undefined ? [] : names(place)) {
    const [holder, made] = [holderOf(place, name), fs.statSync(`${place.dir}/${name}`)?.mtimeNs]
    if (holder && made !== undefined && made < (boot as bigint)) found.set(name as Ip, holder)
  }
  if (found.size === 0) return found
  const attached = new Set(entries().map(({ owner }) => owner.containerId as string))
  for (const [ip, { containerId }] of found) if (attached.has(containerId)) found.delete(ip)
  try {
    if (found.size > 0)
      inEach(() => {
        for (const ip of addressesHere()) found.delete(ip)
      })
  } catch (cause) {
    log(`plumb: Cannot tell which addresses of ${place.dir} an earlier boot left: ${(cause as Error).message}`)
    return new Map()
  }
  return found
}

/** The start of this boot in nanoseconds since 1970, with two seconds less, because the kernel rounds it. Undefined when the kernel does not tell. */
function bootNs(): bigint | undefined {
  const [, seconds] = /^btime (\d+)$/m.exec(readText('/proc/stat') ?? '') ?? []
  return seconds === undefined ? undefined : (BigInt(seconds) - 2n) * 1_000_000_000n
}
