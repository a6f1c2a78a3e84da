import { fileName } from './alias.ts'
import { apply } from './apply.ts'
import { leave, occupy } from './busy.ts'
import { CniError, CODE } from './errors.ts'
import { createMark, remove } from './files.ts'
import { log } from './log.ts'
import { gatewayPort } from './owner.ts'
import type { Run } from './plugin.ts'
import { listFiles } from './reading.ts'
import type { Link, Owner } from './state.ts'
import { brief, type IfName, type NetworkName } from './values.ts'

// A folder for each link that holds a bridge's gateway addresses in a VLAN, in it a file for each attachment that needs it. As volatile as the links.
const DIR = '/run/cni/plumb/holders'

/** Notes, before the link is made or found, that an attachment needs it: it then outlives every other's DEL. False when that was noted already. Throws CniError 11 when a removal does not end within 30 s. */
export function hold(link: IfName, owner: Owner): boolean {
  const dir = `${DIR}/${link}`
  if (!occupy(dir)) throw new CniError(CODE.tryLater, `Cannot use ${link}: another call has been removing it for 30 s`)
  try {
    return createMark(`${dir}/${fileName(owner)}`)
  } finally {
    leave(dir)
  }
}

/** Notes that an attachment needs no such link any more; one that nobody else needs is removed. Starts nothing when there is none. */
export async function letGo(owner: Owner, run: Run): Promise<void> {
  await forsake((name) => name === fileName(owner), run)
}

/** The same for a network's attachments but these (GC). */
export async function letGoBut(network: NetworkName, owners: readonly Owner[], run: Run): Promise<void> {
  const keep = new Set(owners.map(fileName))
  await forsake((name) => name.startsWith(`${brief(network)}:`) && !keep.has(name), run)
}

/** The links that would be removed with an attachment. */
export function lastOf(owner: Owner): Link[] {
  const own = fileName(owner)
  return listFiles(DIR).flatMap((link) => (listFiles(`${DIR}/${link}`).join() === own ? [portOf(link)] : []))
}

// The link first: whoever is killed in between leaves the note, and its repetition does the rest.
async function forsake(isGone: (name: string) => boolean, run: Run): Promise<void> {
  for (const link of listFiles(DIR)) {
    const dir = `${DIR}/${link}`
    if (!listFiles(dir).some(isGone)) continue
    if (!occupy(dir)) log(`plumb: Cannot wait any longer for another call that is at work on ${link}`)
    const names = listFiles(dir)
    const gone = names.filter(isGone)
    if (gone.length === names.length) await apply({ put: [], drop: [portOf(link)] }, run)
    for (const name of gone) remove(`${dir}/${name}`)
    leave(dir)
  }
}

// Its other end goes with it. A link of the same name that a reference plugin made has none of ours, and stays.
function portOf(link: string): Link {
  return { kind: 'link', ns: 'host', name: gatewayPort(link as IfName), type: 'veth', up: true }
}
