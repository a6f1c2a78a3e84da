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

/** Notes, before a link that holds a bridge's gateway addresses in a VLAN is made or found, that an attachment needs it: it then outlives every other's DEL. False when that was noted already. Throws CniError 11 when a removal does not end in time. */
export function hold(link: IfName, owner: Owner): boolean {
  if (!occupy(thing(link))) throw new CniError(CODE.tryLater, `Cannot use ${link}: another call has not finished removing it`)
  try {
    return share(thing(link), partName(LINK, owner))
  } finally {
    leave(thing(link))
  }
}

/** Notes that an attachment needs no such link any more; one that nobody else needs is removed. Starts nothing when there is none. */
export async function letGo(owner: Owner, run: Run): Promise<void> {
  await forsake((part) => part === partName(LINK, owner), run)
}

/** The same for a network's attachments but these (GC). */
export async function letGoBut(network: NetworkName, owners: readonly Owner[], run: Run): Promise<void> {
  const keep = new Set(owners.map((owner) => partName(LINK, owner)))
  await forsake((part) => part.startsWith(`${LINK}:${brief(network)}:`) && !keep.has(part), run)
}

/** The links that would be removed with an attachment. */
export function lastOf(owner: Owner): Link[] {
  return thingsOf('links').flatMap((link) => (holdersOf(thing(link)).join() === partName(LINK, owner) ? [portOf(link)] : []))
}

// The link first: whoever is killed in between leaves the note, and its repetition does the rest.
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

// Its other end goes with it. A link of the same name that a reference plugin made has none of ours, and stays.
function portOf(link: string): Link {
  return { kind: 'link', ns: 'host', name: gatewayPort(link as IfName), type: 'veth', up: true }
}
