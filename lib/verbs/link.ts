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

/**
 * The resources whose removal removes the link of an attachment, from its owner and from the journal. Resources that
 * cannot exist are left out.
 */
export function linkOf<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  at: Owner & Pick<Attachment, 'netns'>,
  run: Run,
): Resource[] {
  return ownIn([...plugin.unwire(at), ...(plugin.movesDevice ? [] : (noted(at) ?? []))], run).filter(
    (one) => one.kind !== 'link' || run.link?.(one.name, one.ns) !== false,
  )
}

/**
 * The journal's resources for the removal of an attachment's link, in namespaces that still exist. Undefined when the
 * journal has none.
 */
export function noted(owner: Owner): readonly Resource[] | undefined {
  return readPart(partName(LINK, owner))?.own.filter(lives)
}

/**
 * Writes a link that exists only in the pod to the journal, before it is made. Throws CniError 4 when its name is taken
 * in the pod.
 */
export function noteInPod<C extends NetConf>({ unwire }: InterfacePlugin<C>, { at, io }: Call): void {
  if (at.netns !== undefined && io.run.seen?.(at.ifname, at.netns)) {
    // The DEL that follows must not take the existing link for a link of a reference plugin.
    if (noted(at) === undefined) note(at, { [LINK]: [] })
    throw taken(at)
  }
  note(at, { [LINK]: unwire(at) })
}

/**
 * Writes a device with its name and settings to the journal before it moves into the pod. False when `own` is empty.
 */
export function noteLent(at: Attachment, own: Wiring['own']): boolean {
  if (own.length > 0) note(at, { [LINK]: own })
  return own.length > 0
}

/**
 * Throws CniError 4 when an attachment has a device already, because its noted name and settings would be lost. When
 * the pod is gone without a DEL, the device gets its name and settings back.
 */
export async function refuseLent<C extends NetConf>(
  { unwire }: InterfacePlugin<C>,
  owner: Owner,
  run: Run,
): Promise<void> {
  const part = readPart(partName(LINK, owner))
  if (!part) return
  if (!isThere(part)) await apply({ put: [], drop: unwire(owner) }, run)
  else
    throw new CniError(
      CODE.env,
      `${owner.ifname} of container ${owner.containerId} is attached to network ${owner.network} already`,
      'DEL it first',
    )
}

/** Removes the link of an attachment when only its owner is known (GC). */
export async function removeLink<C extends NetConf>(plugin: InterfacePlugin<C>, owner: Owner, run: Run): Promise<void> {
  beginRemoval(owner)
  await apply({ put: [], drop: linkOf(plugin, owner, run) }, run)
}

/** The error for an interface name that is taken in the pod. */
export function taken({ ifname, netns }: Attachment, options?: ErrorOptions): CniError {
  return new CniError(
    CODE.env,
    `Cannot create ${ifname} in ${netns}: a link of that name is there already`,
    'it is left as it is; delete it, or use another CNI_IFNAME',
    options,
  )
}

/**
 * The resources that exist and belong to the attachment, each once. Any program may use a name in a pod, so a link
 * there must have the owner's alias.
 */
export function ownIn(own: readonly Resource[], run: Run): Resource[] {
  const each = [...new Map(own.map((one) => [handler(one.kind).key(one), one])).values()]
  return each.filter((one) => one.kind !== 'link' || one.ns === 'host' || isOwn(one, run))
}

function isOwn({ name, ns, alias }: Link, run: Run): boolean {
  if (!run.seen) return true
  const seen = run.seen(name, ns)
  return seen !== undefined && (alias === undefined || seen.alias === alias)
}

// A namespace that is gone took its links with it. Its path may lead to another namespace, where no link has the alias.
function lives(one: Resource): boolean {
  return one.ns === 'host' || ['pod', 'own'].includes(netnsState(one.ns))
}
