import { LINK, partName } from '../journal/journal.ts'
import { holdersOf, release, share, thingsOf } from '../journal/shared.ts'
import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import { leave, occupy } from '../os/turns.ts'
import { apply } from '../state/apply.ts'
import type { Link } from '../state/kinds/link.ts'
import { CniError, CODE } from '../text/errors.ts'
import { gatewayPort } from '../text/link-names.ts'
import type { Owner, PartName } from '../text/owner.ts'
import { brief, type IfName, type NetworkName } from '../text/values.ts'

/**
 * Writes to the journal that an attachment needs a shared link: the link that holds a bridge's gateway addresses in a
 * VLAN. Comes before the link is made or found, so that the DEL of another attachment leaves it. Returns false when it
 * was written already. Throws CniError 11 when a removal does not end in time.
 */
export function hold(link: IfName, owner: Owner): boolean {
  if (!occupy(thing(link)))
    throw new CniError(CODE.tryLater, `Cannot use ${link}: another call has not finished removing it`)
  try {
    return share(thing(link), partName(LINK, owner))
  } finally {
    leave(thing(link))
  }
}

/**
 * Writes to the journal that an attachment no longer needs its shared links. Removes a link that no other attachment
 * needs. Starts no process when there is none.
 */
export async function leaveSharedLinks(owner: Owner, run: Run): Promise<void> {
  await forsake((part) => part === partName(LINK, owner), run)
}

/** The same for all attachments of a network except the given ones (GC). */
export async function leaveSharedLinksBut(network: NetworkName, owners: readonly Owner[], run: Run): Promise<void> {
  const keep = new Set(owners.map((owner) => partName(LINK, owner)))
  await forsake((part) => part.startsWith(`${LINK}:${brief(network)}:`) && !keep.has(part), run)
}

/** The shared links that the removal of an attachment would remove. */
export function lastOf(owner: Owner): Link[] {
  return thingsOf('links').flatMap((link) =>
    holdersOf(thing(link)).join() === partName(LINK, owner) ? [portOf(link)] : [],
  )
}

// The link goes first. A call that is killed in between leaves the journal's note, and its repetition does the rest.
async function forsake(isGone: (part: PartName) => boolean, run: Run): Promise<void> {
  for (const link of thingsOf('links')) {
    if (!holdersOf(thing(link)).some(isGone)) continue
    if (!occupy(thing(link))) log(`plumb: Cannot wait any longer for another call that is at work on ${link}`)
    const holders = holdersOf(thing(link))
    const gone = holders.filter(isGone)
    if (gone.length === holders.length) await apply({ put: [], drop: [portOf(link)] }, run)
    for (const part of gone) release(thing(link), part)
    leave(thing(link))
  }
}

function thing(link: string): string {
  return `links/${link}`
}

// The kernel removes the other end, too. A link of this name from a reference plugin has no alias of plumb, and stays.
function portOf(link: string): Link {
  return { kind: 'link', ns: 'host', name: gatewayPort(link as IfName), type: 'veth', up: true }
}
