import { apply } from '../apply.ts'
import { CniError, CODE } from '../errors.ts'
import { remove } from '../files.ts'
import { fs } from '../fs.ts'
import { beginRemoval } from '../pending.ts'
import type { Attachment, InterfacePlugin, NetConf, Run, Wiring } from '../plugin.ts'
import { readRecord, record, recordPath, recordsOf } from '../records.ts'
import type { Owner } from '../state.ts'

type Noting<C extends NetConf> = Pick<InterfacePlugin<C>, 'records' | 'unwire'>

/** Notes what an attachment will own, for a plugin whose `unwire` reads that; false for any other, and for nothing. */
export function noteOwn<C extends NetConf>({ records }: Noting<C>, at: Attachment, own: Wiring['own']): boolean {
  if (records === undefined || own.length === 0) return false
  record([{ path: recordPath(records, at), own }], at)
  return true
}

/** Throws CniError 4 when something is noted of the attachment, which would be lost with the note. */
export function refuseNoted<C extends NetConf>({ records }: Noting<C>, owner: Owner): void {
  if (records !== undefined && fs.existsSync(recordPath(records, owner))) throw new CniError(CODE.env, `${owner.ifname} of container ${owner.containerId} is attached to network ${owner.network} already`, 'DEL it first')
}

/** Forgets it. */
export function forget<C extends NetConf>({ records }: Noting<C>, owner: Owner): void {
  if (records !== undefined) remove(recordPath(records, owner))
}

/** The attachments of a network that something is noted of, but these (GC). */
export function notedBut<C extends NetConf>({ records }: Noting<C>, network: Owner['network'], valid: readonly Owner[]): Owner[] {
  if (records === undefined) return []
  return recordsOf(records, network, valid).flatMap((path) => readRecord(path)?.owner ?? [])
}

/** Removes what one of them owns. */
export async function removeNoted<C extends NetConf>(plugin: Noting<C>, owner: Owner, run: Run): Promise<void> {
  beginRemoval(owner)
  await apply({ put: [], drop: plugin.unwire(owner) }, run)
  forget(plugin, owner)
}
