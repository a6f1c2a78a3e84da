import { apply } from '../apply.ts'
import type { Call } from '../cni.ts'
import { fs } from '../fs.ts'
import { MASQUERADE } from '../masquerade.ts'
import { beginRemoval } from '../pending.ts'
import type { Attachment, InterfacePlugin, NetConf, Run, Wiring } from '../plugin.ts'
import { readRecord, record, recordPath, recordsOf } from '../records.ts'
import { readLoose } from '../shape.ts'
import type { Owner, Resource } from '../state.ts'
import { taken } from './inpod.ts'
import { dropNoted, outdated } from './noted.ts'

// The records that DEL and GC of an interface plugin look for: its own masquerading, and what chained plugins made, within its calls or in the list.
const PARTS = [MASQUERADE, 'portmap', 'firewall', 'bandwidth', 'tuning']

/** Notes what of the parts is made with the first links (bandwidth's ifb), before any of it is made. What an earlier call noted that was killed is removed first. Throws CniError 4 when the attachment is there: then what is noted is in use. */
export async function noteFirst<C extends NetConf>({ unwire }: InterfacePlugin<C>, links: readonly Resource[], { at, io }: Call): Promise<void> {
  const paths = noted(at)
  if (paths.length > 0 && unwire(at).some((one) => one.kind === 'link' && io.run.link?.(one.name, one.ns) !== false)) throw taken(at)
  if (paths.length > 0) await dropNoted(paths, io.run)
  const own = links.filter((one) => one.kind === 'link' && one.type === 'ifb')
  if (own.length > 0) record([{ path: recordPath('bandwidth', at), own }], at)
}

/** Notes what the parts of a wiring make, before it is made. What an earlier attachment of the same key had, whose link went without a DEL, is removed first. */
export async function noteParts({ noted = [], result }: Wiring, at: Attachment, run: Run): Promise<void> {
  const parts = noted.filter(({ own }) => own.length > 0).map(({ type, own }) => ({ path: recordPath(type, at), own }))
  for (const { path, own } of parts) {
    const before = readRecord(path)?.own ?? []
    if (before.length > 0) await apply({ put: [], drop: outdated(before, own) }, run)
  }
  if (parts.length > 0) record(parts, at, result.ips)
}

/** Removes what the parts noted for an attachment, and with it these links: the paths of what was noted. Empty when nothing was; the links are left then. */
export async function dropParts({ at, io }: Call, own: readonly Resource[] = []): Promise<string[]> {
  const paths = noted(at)
  return paths.length > 0 ? dropNoted(paths, io.run, false, own) : []
}

/** Removes what reference plugins made for an attachment in place of the parts that a configuration names, but for those that noted what they made. */
export async function dropForeignParts<C extends NetConf>(plugin: InterfacePlugin<C>, conf: Partial<C>, { at, io, raw }: Call, noted: readonly string[]): Promise<void> {
  for (const { type, conf: settings } of plugin.within?.(conf) ?? []) {
    const part = noted.includes(recordPath(type, at)) ? undefined : await io.plugin(type)
    if (part?.role === 'chained') await part.unwireForeign?.(readLoose(part.conf, { ...raw, ...settings }), at, io.run)
  }
}

/** Removes what parts made for attachments of a network that are none of these. */
export async function dropOthers(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const paths = PARTS.flatMap((type) => recordsOf(type, at.network, valid))
  // A GC that is killed leaves links without their parts: an ADD that finds such a mark removes them first.
  for (const { owner } of paths.flatMap((path) => readRecord(path) ?? [])) beginRemoval(owner)
  for (const path of paths) await dropNoted([path], io.run)
}

function noted(owner: Owner): string[] {
  return PARTS.map((type) => recordPath(type, owner)).filter((path) => fs.existsSync(path))
}
