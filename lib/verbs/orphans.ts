import type { IpConfig } from '../cni/result.ts'
import {
  attachmentsWith,
  beginRemoval,
  close,
  complete,
  type Entry,
  entries,
  isThere,
  LINK,
  type Note,
  partName,
  partsOf,
  readEntry,
} from '../journal/journal.ts'
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
import { leaveSharedLinks } from './shared-links.ts'

/**
 * Removes the objects and journal entries of orphaned attachments, in all networks and for all plugins. An attachment
 * is orphaned when its namespace is gone, or when another program's DEL removed its link. Returns their owners.
 * `isMeant` selects attachments. Logs a failure and goes on.
 */
export async function removeOrphaned(run: Run, isMeant = (_: Owner) => true): Promise<Owner[]> {
  const removed: Owner[] = []
  reindex()
  for (const owner of orphaned(run).filter(isMeant)) if (await removeIfGone(owner, run)) removed.push(owner)
  return removed
}

/** The owners of the attachments that `removeOrphaned` would remove. */
export function orphaned(run: Pick<Run, 'link'>): Owner[] {
  return entries().flatMap((entry) => (isGone(entry, run) ? [entry.owner] : []))
}

/**
 * Removes the objects of orphaned attachments that had one of these addresses: an old host port must not lead to the
 * new pod. A live attachment keeps its objects, because two networks may use the same addresses.
 */
export async function removeFormerOwner(ips: readonly IpConfig[], at: Owner, run: Run): Promise<void> {
  for (const { address } of ips) {
    for (const entry of attachmentsWith(split(address).ip))
      if (!isSame(entry.owner, at) && (isGone(entry, run) || hasLost(entry, at)))
        await removeIfGone(entry.owner, run, (one) => isGone(one, run) || hasLost(one, at))
  }
}

// The pool has given the address to another pod, and the namespace is gone. The kernel may still be removing the link.
function hasLost(entry: Entry, { network }: Owner): boolean {
  return (
    entry.owner.network === network && partsOf(entry).some(([, note]) => note.netns !== undefined && !isThere(note))
  )
}

/**
 * Time limit for another call of the same attachment. Two ADDs may wait for each other, when each got the address that
 * the other attachment had earlier.
 */
const PATIENCE_MS = 2000

// An ADD writes to the journal what it is about to make. This waits for an ADD that is under way, and judges its
// attachment again. It removes nothing while another call is at work: that call makes the attachment now.
async function removeIfGone(owner: Owner, run: Run, isOver = (entry: Entry) => isGone(entry, run)): Promise<boolean> {
  for (const part of [partName(LINK, owner), ...parts(owner).map(([part]) => part)])
    if (!occupy(part, PATIENCE_MS)) return false
  const wasUnfinished = readEntry(owner)?.unfinished === true
  beginRemoval(owner)
  try {
    const entry = readEntry(owner)
    if (!entry || !isOver(entry)) return false
    // A link alone goes with its namespace, so its removal is not worth a log line.
    if (partsOf(entry).some(([part]) => part !== partName(LINK, owner)))
      log('plumb: removed the objects of a container that is gone; its DEL was never called', {
        network: owner.network,
        container: owner.containerId,
      })
    await removeNoted(entry, run)
    // An unfinished entry stays: it says that the address may still be reserved.
    if (!wasUnfinished) close(owner)
    return true
  } catch (cause) {
    log(`plumb: Cannot remove what a container left that is gone: ${(cause as Error).message}`, {
      network: owner.network,
      container: owner.containerId,
    })
    return false
  } finally {
    if (!wasUnfinished) complete(owner)
  }
}

/**
 * Removes the objects that the journal names for an attachment. It needs neither configuration nor result, and the pod
 * may be alive.
 */
export async function removeNoted({ owner, parts: { [LINK]: link } }: Entry, run: Run): Promise<void> {
  const drop = link?.own.some((one) => one.kind === 'link' && one.lent)
    ? givingBack(owner)
    : ownIn(noted(owner) ?? [], run)
  await apply({ put: [], drop }, run)
  const others = parts(owner).flatMap(([part]) => (part === partName(LINK, owner) ? [] : [part]))
  await dropNoted(others, run)
  await leaveSharedLinks(owner, run)
}

function parts(owner: Owner): ReturnType<typeof partsOf> {
  const entry = readEntry(owner)
  return entry ? partsOf(entry) : []
}

// All parts of an attachment belong to one pod, except after a second ADD without a DEL.
function isGone(entry: Entry, run: Pick<Run, 'link'>): boolean {
  return partsOf(entry).some(([, note]) => isPodGone(note, run))
}

// The node's end of a veth pair lives as long as the pod's end, also when the path of the namespace is gone. An
// attachment of another plugin is alive when the pod has the link with the address.
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
