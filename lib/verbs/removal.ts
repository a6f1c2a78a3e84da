import { alias, aliasPrefix, ownerOf } from '../alias.ts'
import { apply } from '../apply.ts'
import { BLIND } from '../argv.ts'
import type { Call } from '../cni.ts'
import { CniError } from '../errors.ts'
import { letGo, letGoBut } from '../holders.ts'
import { type Delegate, delegate } from '../ipam.ts'
import { log } from '../log.ts'
import { isLink } from '../looking.ts'
import { aliased } from '../observe.ts'
import { beginRemoval, besides, end } from '../pending.ts'
import { ownIn, placed, placedBeside, unplace } from '../places.ts'
import type { InterfacePlugin, NetConf, Run } from '../plugin.ts'
import { readLoose } from '../shape.ts'
import type { Owner, Resource } from '../state.ts'
import { forDel, readConf, validAttachments } from './call.ts'
import { throwAll } from './failures.ts'
import { removePlaced } from './inpod.ts'
import { dropForeignParts, dropOthers, dropParts } from './parts.ts'
import { forget, notedBut, removeNoted } from './recorded.ts'
import { together } from './within.ts'

/** DEL of an interface plugin (CNI spec 1.1.0: complete without error even if things are missing; the namespace may be gone). */
export async function del<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const known = forDel(call)
  const { run } = call.io
  for (const ns of new Set(held(plugin, known).map(({ ns }) => ns))) run.prepare?.(BLIND, ns)
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
  const own = held(plugin, call)
  const isNoted = plugin.inPod === true && placed(call.at) !== undefined
  const noted = await dropParts(call, own)
  const already = noted.length > 0 ? [] : (await apply({ put: [], drop: own }, call.io.run)).already
  if (conf) await dropForeignParts(plugin, conf, call, noted)
  if (conf && !isNoted && noted.length === 0 && own.every((resource) => already.includes(resource))) await plugin.unwireForeign?.(conf, call.at, call.io.run)
  await letGo(call.at, call.io.run)
  forget(plugin, call.at)
  if (!pool?.byLink) await pool?.del()
  if (failed.length > 0) throw failed[0]
  if (isNoted) await unplace(call.at)
  end(call.at)
}

/** What of an attachment may be there: by its owner, and where it was noted to stand. */
function held<C extends NetConf>(plugin: InterfacePlugin<C>, { at, io }: Call): Resource[] {
  return ownIn([...plugin.unwire(at), ...((plugin.inPod && placed(at)) || [])], io.run).filter(mayBeThere(io.run))
}

// No process is started for a link that the kernel does not know.
function mayBeThere(run: Run): (one: Resource) => boolean {
  return (one) => one.kind !== 'link' || run.link?.(one.name, one.ns) !== false
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
    besides(at.network, valid).wait()
    await attempt(dropOthers(valid, call))
    await attempt(removeBut(valid, call))
    for (const owner of notedBut(plugin, at.network, valid)) await attempt(removeNoted(plugin, owner, io.run))
    for (const owner of plugin.inPod ? placedBeside(at.network, valid) : []) await attempt(removePlaced(owner, io.run))
    await attempt(plugin.unwireLost?.(io.run))
    if (valid.length === 0) await attempt(together(plugin, conf, call).then((whole) => whole.unshare?.(conf, io.run)))
  }
  if (pool && !pool.byLink) await attempt(pool.gc())
  if (valid && failures.length === 0) besides(at.network, valid).forget()
  throwAll(failures, call)
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
