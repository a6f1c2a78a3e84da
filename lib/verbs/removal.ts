import type { Call } from '../cni/call.ts'
import type { InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { beginRemoval, close, entries, LINK, partName, readPart } from '../journal/journal.ts'
import { BLIND } from '../os/batch-tools.ts'
import { isLink } from '../os/link-state.ts'
import { log } from '../os/log.ts'
import { occupy } from '../os/turns.ts'
import { apply } from '../state/apply.ts'
import { aliased } from '../state/observe.ts'
import type { Resource } from '../state/resource.ts'
import { CniError } from '../text/errors.ts'
import { alias, aliasPrefix, type Owner, ownerOf } from '../text/owner.ts'
import { readLoose } from '../text/shape.ts'
import type { NetworkName } from '../text/values.ts'
import { forDel, readConf, throwAll, validAttachments } from './call.ts'
import { dropForeignParts, dropOthers, dropParts, together } from './fused.ts'
import { linkOf, noted, removeLink } from './link.ts'
import { type Delegate, delegate } from './pool.ts'
import { leaveSharedLinks, leaveSharedLinksBut } from './shared-links.ts'

/** DEL of an interface plugin. It succeeds also when objects or the namespace are missing (CNI spec 1.1.0 DEL). */
export async function del<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const known = forDel(call)
  const { run } = call.io
  for (const ns of new Set(linkOf(plugin, known.at, run).map(({ ns }) => ns))) run.prepare?.(BLIND, ns)
  const isNew = beginRemoval(known.at)
  const conf = readLoose(plugin.conf, call.raw)
  try {
    await remove(plugin, known, await poolOf(conf, call).catch((cause) => missing(cause, call)), conf)
  } catch (cause) {
    // A DEL of what plumb does not know leaves nothing when it fails.
    if (isNew) close(known.at)
    throw cause
  }
}

// The IPAM plugin cannot be found: CNI_PATH is wrong, or the program is being replaced. DEL removes the links and then
// fails. The runtime repeats it, and the repetition frees the addresses.
function missing(cause: unknown, { at }: Call): Freeing | undefined {
  if (cause instanceof CniError) return { byLink: false, del: () => Promise.reject(cause) }
  // No plugin can have this name, so no ADD got an address from it.
  log(`plumb: Cannot free addresses: ${(cause as Error).message}`, { network: at.network })
  return undefined
}

/** The part of a pool that DEL needs. */
type Freeing = Pick<Delegate, 'byLink' | 'del'>

/**
 * Removes the links first and frees the address last, because an address that still answers must not go to another pod.
 * A dhcp lease is given back through its link, so there the order is reversed. The link goes also when that fails. With
 * `conf` this also removes objects that a reference plugin made.
 */
export async function remove<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  call: Call,
  pool: Freeing | undefined,
  conf?: Partial<C>,
): Promise<void> {
  const failed: unknown[] = []
  if (pool?.byLink) await pool.del().catch((cause) => failed.push(cause))
  const own = linkOf(plugin, call.at, call.io.run)
  const isNoted = plugin.inPod === true && noted(call.at) !== undefined
  const isForeign = readPart(partName(LINK, call.at)) === undefined
  const parts = await dropParts(call, own)
  const already = parts.length > 0 ? [] : (await apply({ put: [], drop: own }, call.io.run)).already
  if (conf) await dropForeignParts(plugin, conf, call, parts)
  if (conf && !isNoted && (isForeign || parts.length === 0) && own.every((resource) => already.includes(resource)))
    await plugin.unwireForeign?.(conf, call.at, call.io.run)
  await leaveSharedLinks(call.at, call.io.run)
  if (!pool?.byLink) await pool?.del()
  if (failed.length > 0) throw failed[0]
  close(call.at)
}

/**
 * GC of an interface plugin. Removes the objects of attachments that are not valid, then the addresses that the pool
 * holds for them.
 */
export async function gc<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  const failures: Error[] = []
  const attempt = (work: Promise<void> | undefined) => work?.catch((cause: Error) => void failures.push(cause))
  const pool = await poolOf(conf, call).catch((cause: Error) => void failures.push(cause))
  if (pool?.byLink) await attempt(pool.gc())
  if (valid) {
    // This comes before the search. A tool of a killed ADD may still make a link, and the search would miss it.
    waitFor(at.network, valid)
    await attempt(dropOthers(valid, call))
    await attempt(removeBut(valid, call))
    for (const { owner } of entries(at.network, valid)) await attempt(removeLink(plugin, owner, io.run))
    await attempt(plugin.unwireLost?.(io.run))
    if (valid.length === 0) await attempt(together(plugin, conf, call).then((whole) => whole.unshare?.(conf, io.run)))
  }
  if (pool && !pool.byLink) await attempt(pool.gc())
  if (valid && failures.length === 0) for (const { owner } of entries(at.network, valid)) close(owner)
  throwAll(failures, call)
}

// Waits until the calls for other attachments have ended.
function waitFor(network: NetworkName, valid: readonly Owner[]): void {
  for (const { owner, unfinished } of entries(network, valid)) if (unfinished) occupy(partName(LINK, owner))
}

/** Removes all links of the network except those of the given attachments. */
async function removeBut(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const keep = new Set(valid.map(alias))
  const stale = (await aliased(aliasPrefix(at.network), io.run)).filter((link) => !keep.has(link.alias as string))
  for (const link of stale) beginRemoval(ownerOf(link.alias as string, at.network))
  await apply({ put: [], drop: stale }, io.run)
  await leaveSharedLinksBut(at.network, valid, io.run)
}

/**
 * Throws the error of a removal, unless none of the links exists. A broken tool made no link and can remove none. The
 * address need not stay reserved then.
 */
export function unlessGone(own: readonly Resource[]): (cause: Error) => void {
  return (cause) => {
    if (own.some((one) => one.kind !== 'link' || isLink(one.name, one.ns))) throw cause
  }
}

/** The pool that the configuration names. Throws CniError when its plugin cannot be found. */
export async function poolOf<C extends NetConf>(conf: Partial<C>, call: Call): Promise<Delegate | undefined> {
  return conf.ipam?.type ? delegate(conf.ipam.type, call) : undefined
}
