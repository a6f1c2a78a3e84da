import type { Call } from '../cni/call.ts'
import type { Attachment, InterfacePlugin, NetConf, Wiring } from '../cni/plugin.ts'
import { beginRemoval, isThere, LINK, note, partName, readPart } from '../journal/journal.ts'
import { netnsState } from '../os/netns.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import { handler } from '../state/kinds/index.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'

/** What removes the link of an attachment, by its owner and by what was noted; what cannot be there is left out. */
export function linkOf<C extends NetConf>(plugin: InterfacePlugin<C>, at: Owner & Pick<Attachment, 'netns'>, run: Run): Resource[] {
  return ownIn([...plugin.unwire(at), ...(plugin.lends ? [] : (noted(at) ?? []))], run).filter((one) => one.kind !== 'link' || run.link?.(one.name, one.ns) !== false)
}

/** What was noted to remove the link of an attachment, of namespaces that still live; undefined when nothing was. */
export function noted(owner: Owner): readonly Resource[] | undefined {
  return readPart(partName(LINK, owner))?.own.filter(lives)
}

/** Notes what will stand in the pod alone, before it is made. Throws CniError 4 when the name is taken there. */
export function noteInPod<C extends NetConf>({ unwire }: InterfacePlugin<C>, { at, io }: Call): void {
  if (at.netns !== undefined && io.run.seen?.(at.ifname, at.netns)) {
    // The DEL that follows must not take it for a reference plugin's of this attachment.
    if (noted(at) === undefined) note(at, { [LINK]: [] })
    throw taken(at)
  }
  note(at, { [LINK]: unwire(at) })
}

/** Notes a device that will be lent, before it moves. Throws CniError 4 when one is: what it was like would be lost with the note. */
export function noteLent(at: Attachment, own: Wiring['own']): boolean {
  if (own.length > 0) note(at, { [LINK]: own })
  return own.length > 0
}

/** Throws CniError 4 when a device is lent to an attachment already. One whose pod is gone without a DEL gets its name and settings back first. */
export async function refuseLent<C extends NetConf>({ unwire }: InterfacePlugin<C>, owner: Owner, run: Run): Promise<void> {
  const part = readPart(partName(LINK, owner))
  if (!part) return
  if (!isThere(part)) await apply({ put: [], drop: unwire(owner) }, run)
  else throw new CniError(CODE.env, `${owner.ifname} of container ${owner.containerId} is attached to network ${owner.network} already`, 'DEL it first')
}

/** Removes the link of an attachment by its owner alone (GC). */
export async function removeLink<C extends NetConf>(plugin: InterfacePlugin<C>, owner: Owner, run: Run): Promise<void> {
  beginRemoval(owner)
  await apply({ put: [], drop: linkOf(plugin, owner, run) }, run)
}

/** That the pod has a link of the name that was asked for. */
export function taken({ ifname, netns }: Attachment, options?: ErrorOptions): CniError {
  return new CniError(CODE.env, `Cannot create ${ifname} in ${netns}: a link of that name is there already`, 'it is left as it is; delete it, or use another CNI_IFNAME', options)
}

/** Those that are there and the attachment's own: in a pod a name is anybody's, so what has it must have the alias, too. Each once. */
export function ownIn(own: readonly Resource[], run: Run): Resource[] {
  const each = [...new Map(own.map((one) => [handler(one.kind).key(one), one])).values()]
  return each.filter((one) => one.kind !== 'link' || one.ns === 'host' || isOwn(one, run))
}

function isOwn({ name, ns, alias }: Link, run: Run): boolean {
  if (!run.seen) return true
  const seen = run.seen(name, ns)
  return seen !== undefined && (alias === undefined || seen.alias === alias)
}

// A namespace that is gone took its links with it. Its path may lead to another by now: there no link has the alias.
function lives(one: Resource): boolean {
  return one.ns === 'host' || ['pod', 'own'].includes(netnsState(one.ns))
}
