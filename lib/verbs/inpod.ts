import { apply } from '../apply.ts'
import type { Call } from '../cni.ts'
import { CniError, CODE } from '../errors.ts'
import { beginRemoval } from '../pending.ts'
import { ownIn, place, placed, unplace } from '../places.ts'
import type { Attachment, InterfacePlugin, NetConf, Run } from '../plugin.ts'
import type { Owner } from '../state.ts'

/** Notes what will stand in the pod, and in which, before it is made. Throws CniError 4 when the name is taken there. */
export function note<C extends NetConf>({ unwire }: InterfacePlugin<C>, { at, io }: Call): void {
  if (at.netns !== undefined && io.run.seen?.(at.ifname, at.netns)) {
    // The DEL that follows must not take it for a reference plugin's of this attachment.
    if (placed(at) === undefined) place(at, [])
    throw taken(at)
  }
  place(at, unwire(at))
}

/** Removes what an attachment has in a pod that still lives (GC). */
export async function removePlaced(owner: Owner, run: Run): Promise<void> {
  beginRemoval(owner)
  await apply({ put: [], drop: ownIn(placed(owner) ?? [], run) }, run)
  await unplace(owner)
}

/** That the pod has a link of the name that was asked for. */
export function taken({ ifname, netns }: Attachment, options?: ErrorOptions): CniError {
  return new CniError(CODE.env, `Cannot create ${ifname} in ${netns}: a link of that name is there already`, 'it is left as it is; delete it, or use another CNI_IFNAME', options)
}
