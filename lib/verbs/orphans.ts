import { addressed, unaddress } from '../addressees.ts'
import { apply } from '../apply.ts'
import { occupy } from '../busy.ts'
import { letGo } from '../holders.ts'
import { split } from '../ip.ts'
import { givingBack } from '../lending.ts'
import { addressesNow } from '../linkaddrs.ts'
import { linkFacts } from '../linkfacts.ts'
import { log } from '../log.ts'
import { inside } from '../netns.ts'
import { hostVeth } from '../owner.ts'
import { beginRemoval, end, isUnfinished } from '../pending.ts'
import { isPlace } from '../places.ts'
import type { Run } from '../plugin.ts'
import { allRecords, isThere, type Note, readRecord, recordsFor, unrecord } from '../records.ts'
import type { IpConfig } from '../result.ts'
import type { Owner } from '../state.ts'
import type { NetnsPath } from '../values.ts'
import { removePlaced } from './inpod.ts'
import { dropNoted } from './noted.ts'

/** Removes what attachments own that are gone without a DEL of plumb's (their namespace is gone, or another program's DEL removed their link), their records with it: of all networks and plugins. Gives whose it was. `isMeant` narrows it to some attachments. A failure is logged, and the rest goes on. */
export async function removeOrphaned(run: Run, isMeant = (_: Owner) => true): Promise<Owner[]> {
  const removed: Owner[] = []
  for (const owner of orphaned(run).filter(isMeant)) if (await removeIfGone(owner, run)) removed.push(owner)
  return removed
}

/** The attachments whose things `removeOrphaned` would remove. */
export function orphaned(run: Pick<Run, 'link'>): Owner[] {
  const found = allRecords().flatMap((path) => goneBy(path, run))
  return [...new Map(found.map(({ owner }) => [JSON.stringify(owner), owner])).values()]
}

/** Removes what earlier owners of addresses left that a pool gives out anew: a host port must not lead to another pod. One that lives keeps what it has: two networks may use the same addresses. */
export async function evict(ips: readonly IpConfig[], at: Owner, run: Run): Promise<void> {
  for (const { address } of ips) {
    const { ip } = split(address)
    for (const path of addressed(ip)) {
      const note = readRecord(path)
      if (!note?.ips?.includes(ip)) unaddress(path, [ip])
      else if (!isSame(note.owner, at) && isGone(note, run)) await removeIfGone(note.owner, run)
    }
  }
}

// An ADD notes what it is about to make: one that is under way is waited for, and then judged again.
async function removeIfGone(owner: Owner, run: Run): Promise<boolean> {
  const wasUnfinished = isUnfinished(owner)
  beginRemoval(owner)
  try {
    const paths = recordsFor(owner)
    for (const path of paths) occupy(path)
    if (!paths.some((path) => goneBy(path, run).length > 0)) return false
    log('plumb: what a container left that is gone is removed: no DEL of plumb was called for it', { network: owner.network, container: owner.containerId })
    for (const path of paths) {
      if (!readRecord(path)?.own.some((one) => one.kind === 'link' && one.lent)) continue
      await unrecord(path, async () => void (await apply({ put: [], drop: givingBack(path, owner) }, run)))
    }
    await dropNoted(
      paths.filter((path) => !isPlace(path)),
      run,
    )
    if (paths.some(isPlace)) await removePlaced(owner, run)
    await letGo(owner, run)
    return true
  } catch (cause) {
    log(`plumb: Cannot remove what a container left that is gone: ${(cause as Error).message}`, { network: owner.network, container: owner.containerId })
    return false
  } finally {
    // The mark of a call that was killed says more: that its address may be reserved still.
    if (!wasUnfinished) end(owner)
  }
}

function goneBy(path: string, run: Pick<Run, 'link'>): Note[] {
  const note = readRecord(path)
  return note && isGone(note, run) ? [note] : []
}

// The node's end of a pair of ours lives as long as its pod's, whatever became of the namespace's path. What another plugin made is known by the pod's link and its addresses.
function isGone(note: Note, run: Pick<Run, 'link'>): boolean {
  const { netns, owner, ips = [] } = note
  if (netns === undefined || run.link?.(hostVeth(owner), 'host') !== false) return false
  return !isThere(note) || inside(netns as NetnsPath, () => !hasLink(owner, ips))
}

function hasLink({ ifname }: Owner, ips: readonly string[]): boolean {
  const link = linkFacts(ifname)
  if (link === undefined || ips.length === 0) return link !== undefined
  const held = addressesNow(link.index).map(({ cidr }) => split(cidr).ip as string)
  return ips.some((ip) => held.includes(ip))
}

function isSame(one: Owner, other: Owner): boolean {
  return one.network === other.network && one.containerId === other.containerId && one.ifname === other.ifname
}
