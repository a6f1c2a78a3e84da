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

// The parts that DEL and GC of an interface plugin remove: its own masquerading, and the parts of chained plugins. A
// chained plugin worked within the calls of the interface plugin, or in the list.
const PARTS = [MASQUERADE, ...FUSED.map(({ type }) => type)]

/**
 * Writes to the journal the parts' resources that are made with the first links (bandwidth's ifb), before ADD makes
 * them. First it removes the noted resources of an earlier call that was killed. Throws CniError 4 when the attachment
 * exists, because the noted resources are in use then.
 */
export async function noteFirst<C extends NetConf>(
  { unwire }: InterfacePlugin<C>,
  links: readonly Resource[],
  { at, io }: Call,
): Promise<void> {
  const parts = partsOf(at)
  if (parts.length > 0 && unwire(at).some((one) => one.kind === 'link' && io.run.link?.(one.name, one.ns) !== false))
    throw taken(at)
  if (parts.length > 0) await dropNoted(parts, io.run)
  const own = links.filter((one) => one.kind === 'link' && one.type === 'ifb')
  if (own.length > 0) note(at, { bandwidth: own })
}

/**
 * Writes to the journal the addresses of an attachment and the resources of its parts, before ADD makes them. An
 * earlier attachment of the same owner may have lost its link without a DEL. Its outdated resources are removed first.
 */
export async function noteParts({ noted = [], result }: Wiring, at: Attachment, run: Run): Promise<void> {
  const parts = noted.filter(({ own }) => own.length > 0)
  for (const { type, own } of parts) {
    const before = readPart(partName(type, at))
    if (before) await apply({ put: [], drop: outdated(reachable(before, run), own) }, run)
  }
  note(at, Object.fromEntries(parts.map(({ type, own }) => [type, own])), result.ips)
}

/**
 * Removes the noted resources of an attachment's parts, together with the resources `own` of its link. Returns the
 * names of the parts. Returns an empty list when there are no parts. Then `own` is not removed.
 */
export async function dropParts({ at, io }: Call, own: readonly Resource[] = []): Promise<PartName[]> {
  const parts = partsOf(at)
  return parts.length > 0 ? dropNoted(parts, io.run, false, own) : []
}

/**
 * Removes the objects that reference plugins made for an attachment, for each chained plugin that the configuration
 * asks for. Skips the parts in `noted`, because plumb made their objects.
 */
export async function dropForeignParts<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  conf: Partial<C>,
  { at, io, raw }: Call,
  noted: readonly PartName[],
): Promise<void> {
  for (const { type, conf: settings } of plugin.within?.(conf) ?? []) {
    const part = noted.includes(partName(type, at)) ? undefined : await io.plugin(type)
    if (part?.role === 'chained') await part.unwireForeign?.(readLoose(part.conf, { ...raw, ...settings }), at, io.run)
  }
}

/** Removes the resources of parts for all attachments of the network except the valid ones (GC). */
export async function dropOthers(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const owners = entries(at.network, valid).flatMap(({ owner }) => (partsOf(owner).length > 0 ? [owner] : []))
  // A killed GC leaves links without their parts. The next ADD finds the unfinished entry and removes them first.
  for (const owner of owners) beginRemoval(owner)
  for (const owner of owners) for (const part of partsOf(owner)) await dropNoted([part], io.run)
}

function partsOf(owner: Owner): PartName[] {
  const entry = readEntry(owner)
  return PARTS.flatMap((type) => (entry?.parts[type] ? [partName(type, owner)] : []))
}
