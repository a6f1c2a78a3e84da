import type { Call } from '../cni/call.ts'
import { FUSED } from '../cni/fused-plugins.ts'
import type { Attachment, InterfacePlugin, NetConf, Wiring } from '../cni/plugin.ts'
import { beginRemoval, entries, note, partName, readEntry, readPart } from '../journal/journal.ts'
import { MASQUERADE } from '../nft/masquerade.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import type { Resource } from '../state/resource.ts'
import type { Owner, PartName } from '../text/owner.ts'
import { readLoose } from '../text/shape.ts'
import { dropNoted, outdated } from './journal-parts.ts'
import { taken } from './link.ts'
import { reachable } from './reachable.ts'

// The parts that DEL and GC of an interface plugin look for: its own masquerading, and what chained plugins made, within its calls or in the list.
const PARTS = [MASQUERADE, ...FUSED.map(({ type }) => type)]

/** Notes what of the parts is made with the first links (bandwidth's ifb), before any of it is made. What an earlier call noted that was killed is removed first. Throws CniError 4 when the attachment is there: then what is noted is in use. */
export async function noteFirst<C extends NetConf>({ unwire }: InterfacePlugin<C>, links: readonly Resource[], { at, io }: Call): Promise<void> {
  const parts = partsOf(at)
  if (parts.length > 0 && unwire(at).some((one) => one.kind === 'link' && io.run.link?.(one.name, one.ns) !== false)) throw taken(at)
  if (parts.length > 0) await dropNoted(parts, io.run)
  const own = links.filter((one) => one.kind === 'link' && one.type === 'ifb')
  if (own.length > 0) note(at, { bandwidth: own })
}

/** Notes the addresses of an attachment and what the parts of its wiring make, before it is made. What an earlier attachment of the same key had, whose link went without a DEL, is removed first. */
export async function noteParts({ noted = [], result }: Wiring, at: Attachment, run: Run): Promise<void> {
  const parts = noted.filter(({ own }) => own.length > 0)
  for (const { type, own } of parts) {
    const before = readPart(partName(type, at))
    if (before) await apply({ put: [], drop: outdated(reachable(before, run), own) }, run)
  }
  note(at, Object.fromEntries(parts.map(({ type, own }) => [type, own])), result.ips)
}

/** Removes what the parts noted for an attachment, and with it these links: which parts there were. Empty when nothing was noted; the links are left then. */
export async function dropParts({ at, io }: Call, own: readonly Resource[] = []): Promise<PartName[]> {
  const parts = partsOf(at)
  return parts.length > 0 ? dropNoted(parts, io.run, false, own) : []
}

/** Removes what reference plugins made for an attachment in place of the parts that a configuration names, but for those that noted what they made. */
export async function dropForeignParts<C extends NetConf>(plugin: InterfacePlugin<C>, conf: Partial<C>, { at, io, raw }: Call, noted: readonly PartName[]): Promise<void> {
  for (const { type, conf: settings } of plugin.within?.(conf) ?? []) {
    const part = noted.includes(partName(type, at)) ? undefined : await io.plugin(type)
    if (part?.role === 'chained') await part.unwireForeign?.(readLoose(part.conf, { ...raw, ...settings }), at, io.run)
  }
}

/** Removes what parts made for attachments of a network that are none of these. */
export async function dropOthers(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const owners = entries(at.network, valid).flatMap(({ owner }) => (partsOf(owner).length > 0 ? [owner] : []))
  // A GC that is killed leaves links without their parts: an ADD that finds an unfinished entry removes them first.
  for (const owner of owners) beginRemoval(owner)
  for (const owner of owners) for (const part of partsOf(owner)) await dropNoted([part], io.run)
}

function partsOf(owner: Owner): PartName[] {
  const entry = readEntry(owner)
  return PARTS.flatMap((type) => (entry?.parts[type] ? [partName(type, owner)] : []))
}
