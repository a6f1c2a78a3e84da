import type { Call } from '../cni/call.ts'
import type { InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { beginRemoval, close, entries, LINK, partName } from '../journal/journal.ts'
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
import { together } from './fused.ts'
import { dropForeignParts, dropOthers, dropParts } from './fused-parts.ts'
import { linkOf, noted, removeLink } from './link.ts'
import { type Delegate, delegate } from './pool.ts'
import { letGo, letGoBut } from './shared-links.ts'

/** DEL of an interface plugin (CNI spec 1.1.0: complete without error even if things are missing; the namespace may be gone). */
export async function del<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const known = forDel(call)
  const { run } = call.io
  for (const ns of new Set(linkOf(plugin, known.at, run).map(({ ns }) => ns))) run.prepare?.(BLIND, ns)
  beginRemoval(known.at)
  const conf = readLoose(plugin.conf, call.raw)
  await remove(plugin, known, await poolOf(conf, call).catch((cause) => missing(cause, call)), conf)
}

// A pool that cannot be found today keeps its addresses. DEL fails once the links are gone, and the runtime repeats it (CNI_PATH is wrong, the program is being replaced).
function missing(cause: unknown, { at }: Call): Freeing | undefined {
  if (cause instanceof CniError) return { byLink: false, del: () => Promise.reject(cause) }
  // No plugin can have such a name: no ADD got an address by it.
  log(`plumb: Cannot free addresses: ${(cause as Error).message}`, { network: at.network })
  return undefined
}

/** What DEL needs of a pool. */
type Freeing = Pick<Delegate, 'byLink' | 'del'>

/** Links first, the address last: one that still answers is never given to another. But what was got through a link is given back through it, and the link goes whatever comes of that. With `conf`, what reference plugins made in place of what is not there. */
export async function remove<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, pool: Freeing | undefined, conf?: Partial<C>): Promise<void> {
  const failed: unknown[] = []
  if (pool?.byLink) await pool.del().catch((cause) => failed.push(cause))
  const own = linkOf(plugin, call.at, call.io.run)
  const isNoted = plugin.inPod === true && noted(call.at) !== undefined
  const parts = await dropParts(call, own)
  const already = parts.length > 0 ? [] : (await apply({ put: [], drop: own }, call.io.run)).already
  if (conf) await dropForeignParts(plugin, conf, call, parts)
  if (conf && !isNoted && parts.length === 0 && own.every((resource) => already.includes(resource))) await plugin.unwireForeign?.(conf, call.at, call.io.run)
  await letGo(call.at, call.io.run)
  if (!pool?.byLink) await pool?.del()
  if (failed.length > 0) throw failed[0]
  close(call.at)
}

/** GC of an interface plugin: what is none of the valid attachments', then what the pool holds for others. */
export async function gc<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  const failures: Error[] = []
  const attempt = (work: Promise<void> | undefined) => work?.catch((cause: Error) => void failures.push(cause))
  const pool = await poolOf(conf, call).catch((cause: Error) => void failures.push(cause))
  if (pool?.byLink) await attempt(pool.gc())
  if (valid) {
    // Before anything is looked for: what a tool of a killed ADD is about to make would be overlooked.
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

// Until the calls for other attachments have ended.
function waitFor(network: NetworkName, valid: readonly Owner[]): void {
  for (const { owner, unfinished } of entries(network, valid)) if (unfinished) occupy(partName(LINK, owner))
}

/** Removes the network's links that are none of these attachments'. */
async function removeBut(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const keep = new Set(valid.map(alias))
  const stale = (await aliased(aliasPrefix(at.network), io.run)).filter((link) => !keep.has(link.alias as string))
  for (const link of stale) beginRemoval(ownerOf(link.alias as string, at.network))
  await apply({ put: [], drop: stale }, io.run)
  await letGoBut(at.network, valid, io.run)
}

/** Throws what a removal failed with, unless none of the links is there. A tool that fails altogether made no link before, and cannot say so: then the address need not stay taken for it. */
export function unlessGone(own: readonly Resource[]): (cause: Error) => void {
  return (cause) => {
    if (own.some((one) => one.kind !== 'link' || isLink(one.name, one.ns))) throw cause
  }
}

/** The pool that a configuration names. Throws CniError when it cannot be found. */
export async function poolOf<C extends NetConf>(conf: Partial<C>, call: Call): Promise<Delegate | undefined> {
  return conf.ipam?.type ? delegate(conf.ipam.type, call) : undefined
}
