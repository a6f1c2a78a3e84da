import type { IpConfig } from '../cni/result.ts'
import { attachmentsWith, beginRemoval, close, complete, type Entry, entries, isThere, LINK, type Note, partName, partsOf, readEntry } from '../journal/journal.ts'
import { reindex } from '../journal/reindex.ts'
import { addressesNow } from '../os/link-addresses.ts'
import { linkFacts } from '../os/links.ts'
import { log } from '../os/log.ts'
import { inside } from '../os/netns.ts'
import type { Run } from '../os/run.ts'
import { occupy } from '../os/turns.ts'
import { apply } from '../state/apply.ts'
import { split } from '../text/ip.ts'
import { hostVeth } from '../text/link-names.ts'
import type { Owner } from '../text/owner.ts'
import type { NetnsPath } from '../text/values.ts'
import { givingBack } from '../wiring/host-device.ts'
import { dropNoted } from './journal-parts.ts'
import { noted, ownIn } from './link.ts'
import { letGo } from './shared-links.ts'

/** Removes what attachments own that are gone without a DEL of plumb's (their namespace is gone, or another program's DEL removed their link), their entries with it: of all networks and plugins. Gives whose it was. `isMeant` narrows it to some attachments. A failure is logged, and the rest goes on. */
export async function removeOrphaned(run: Run, isMeant = (_: Owner) => true): Promise<Owner[]> {
  const removed: Owner[] = []
  reindex()
  for (const owner of orphaned(run).filter(isMeant)) if (await removeIfGone(owner, run)) removed.push(owner)
  return removed
}

/** The attachments whose things `removeOrphaned` would remove. */
export function orphaned(run: Pick<Run, 'link'>): Owner[] {
  return entries().flatMap((entry) => (isGone(entry, run) ? [entry.owner] : []))
}

/** Removes what earlier owners of addresses left that a pool gives out anew: a host port must not lead to another pod. One that lives keeps what it has: two networks may use the same addresses. */
export async function evict(ips: readonly IpConfig[], at: Owner, run: Run): Promise<void> {
  for (const { address } of ips) {
    for (const entry of attachmentsWith(split(address).ip)) if (!isSame(entry.owner, at) && (isGone(entry, run) || hasLost(entry, at))) await removeIfGone(entry.owner, run, (one) => isGone(one, run) || hasLost(one, at))
  }
}

// The pool has given its address away, and its namespace is not where it was: the kernel may take a moment to remove its link.
function hasLost(entry: Entry, { network }: Owner): boolean {
  return entry.owner.network === network && partsOf(entry).some(([, note]) => note.netns !== undefined && !isThere(note))
}

/** Waits so long for another call of an attachment that seems to be gone. Two ADDs may wait for each other: each got the address that the other's attachment had earlier. */
const PATIENCE_MS = 2000

// An ADD writes to the journal what it is about to make. This waits for an ADD that is under way, and judges its attachment again. It removes nothing while another
// call is at work: that call makes the attachment now.
async function removeIfGone(owner: Owner, run: Run, isOver = (entry: Entry) => isGone(entry, run)): Promise<boolean> {
  for (const part of [partName(LINK, owner), ...parts(owner).map(([part]) => part)]) if (!occupy(part, PATIENCE_MS)) return false
  const wasUnfinished = readEntry(owner)?.unfinished === true
  beginRemoval(owner)
  try {
    const entry = readEntry(owner)
    if (!entry || !isOver(entry)) return false
    // Of a link alone nothing is left that anybody would miss.
    if (partsOf(entry).some(([part]) => part !== partName(LINK, owner))) log('plumb: what a container left that is gone is removed: no DEL of plumb was called for it', { network: owner.network, container: owner.containerId })
    await removeNoted(entry, run)
    // An unfinished entry says more: that the address may be reserved still.
    if (!wasUnfinished) close(owner)
    return true
  } catch (cause) {
    log(`plumb: Cannot remove what a container left that is gone: ${(cause as Error).message}`, { network: owner.network, container: owner.containerId })
    return false
  } finally {
    if (!wasUnfinished) complete(owner)
  }
}

/** Removes what an attachment has by its entry, without configuration and result, whether its pod lives or not. */
export async function removeNoted({ owner, parts: { [LINK]: link } }: Entry, run: Run): Promise<void> {
  const drop = link?.own.some((one) => one.kind === 'link' && one.lent) ? givingBack(owner) : ownIn(noted(owner) ?? [], run)
  await apply({ put: [], drop }, run)
  await dropNoted(
    parts(owner).flatMap(([part]) => (part === partName(LINK, owner) ? [] : [part])),
    run,
  )
  await letGo(owner, run)
}

function parts(owner: Owner): ReturnType<typeof partsOf> {
  const entry = readEntry(owner)
  return entry ? partsOf(entry) : []
}

// Parts of one attachment are of one pod, but for an ADD that came again without a DEL.
function isGone(entry: Entry, run: Pick<Run, 'link'>): boolean {
  return partsOf(entry).some(([, note]) => isPodGone(note, run))
}

// The node's end of a pair of ours lives as long as its pod's, whatever became of the namespace's path. What another plugin made is known by the pod's link and its addresses.
function isPodGone(note: Note, run: Pick<Run, 'link'>): boolean {
  const { netns, owner, ips } = note
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
