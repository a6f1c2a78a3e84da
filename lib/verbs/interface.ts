import { alias, aliasPrefix, ownerOf } from '../alias.ts'
import { type Applied, ApplyError, ahead, apply } from '../apply.ts'
import { untilRunning } from '../carrier.ts'
import type { Call, Done, Verbs } from '../cni.ts'
import { untilUnique } from '../dad.ts'
import { CniError, CODE } from '../errors.ts'
import { hold, letGo, letGoBut } from '../holders.ts'
import { type Delegate, delegate } from '../ipam.ts'
import { BLIND, SHOWING } from '../iproute.ts'
import { handler } from '../kinds/index.ts'
import { log } from '../log.ts'
import { isLink } from '../netns.ts'
import { aliased, differences, present } from '../observe.ts'
import { begin, beginRemoval, besides, end } from '../pending.ts'
import type { Attachment, InterfacePlugin, NetConf, Run, Wiring } from '../plugin.ts'
import type { Result } from '../result.ts'
import { readLoose } from '../shape.ts'
import type { Link, Owner, Plan, Resource } from '../state.ts'
import { nodeFacts } from '../sysctls.ts'
import { encode } from '../versions.ts'
import { forDel, readConf, requirePod, requirePrevious, validAttachments } from './call.ts'
import { throwAll } from './failures.ts'
import { forget, note, notedBut, refuseNoted, removeNoted } from './noted.ts'

/** The verbs of a plugin that makes the container's link out of `wire`: all or nothing on ADD, by the owner alone on DEL. */
export function interfaces<C extends NetConf>(plugin: InterfacePlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    del: (call) => del(plugin, call),
    gc: (call) => gc(plugin, call),
    async status(call) {
      const conf = readConf(plugin, call)
      await (await poolOf(conf, call))?.status()
      await plugin.status?.(conf, call.io.run)
    },
  }
}

async function add<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<Done> {
  const { at, io } = call
  requirePod(call)
  // The tool that every ADD needs starts up while the configuration is read.
  io.run.prepare?.(plugin.links ? SHOWING : BLIND)
  const conf = readConf(plugin, call)
  const pool = await poolOf(conf, call)
  pool?.valid()
  // Without a pool it is known already whether this version can show the result.
  if (!pool && !plugin.records) encode(plugin.wire(conf, at, {}, nodeFacts).result, call.version)
  const links = plugin.links?.(conf, at) ?? []
  if (begin(at)) await remove(plugin, call, pool)
  const attempt: Attempt<C> = { conf, pool, links, made: { addresses: false, links: false, holds: false, record: false }, onNode: once(() => apply({ put: links, drop: [] }, io.run)) }
  try {
    const text = await make(plugin, call, attempt)
    return { text, undo: () => undo(plugin, call, attempt), delivered: () => end(at) }
  } catch (cause) {
    // A device that meets its name in the pod has moved all the same.
    if (isTaken(cause) && !attempt.made.record) attempt.made.links = false
    await undo(plugin, call, attempt).catch((lost: Error) => log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, { container: at.containerId }))
    throw explained(cause, at, attempt.wiring)
  }
}

/** One ADD on its way: what it works with, and what it has made. */
interface Attempt<C> {
  readonly conf: C
  readonly pool: Delegate | undefined
  readonly links: readonly Link[]
  readonly made: { addresses: boolean; links: boolean; holds: boolean; record: boolean }
  /** Makes `links`; called again, it tells how that went. */
  readonly onNode: () => Promise<Applied>
  wiring?: Wiring
}

async function make<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, attempt: Attempt<C>): Promise<string> {
  const { at, io } = call
  const { conf, pool, links, made, onNode } = attempt
  const moved = plugin.records === undefined ? undefined : await move(plugin, call, attempt)
  // Another program's ADD may have half done its work when it fails; a second ADD of a live attachment keeps its address all the same.
  made.addresses = pool?.foreign === true && (await present(plugin.unwire(at), io.run)).length === 0
  if (pool?.foreign === false && links.length > 0) {
    // The node's side needs no address: it is made while the pool looks for one.
    made.links = true
    ahead({ put: links, drop: [] }, io.run)
  }
  io.run.prepare?.(BLIND, at.netns)
  const given = pool ? await pool.add() : {}
  made.addresses = true
  if (pool) requireAddress(given, conf.ipam?.type ?? '')
  const wiring = plugin.wire(conf, at, moved ? { ...given, ...moved } : given, nodeFacts)
  attempt.wiring = wiring
  encode(wiring.result, call.version)
  made.links = true
  for (const link of plugin.holders?.(conf) ?? []) made.holds = hold(link, at) || made.holds
  const { seen } = await onNode()
  const rest = await apply(beside(links, wiring), io.run)
  const settled = wiring.settle?.([...seen, ...rest.seen])
  if (settled?.plan) await apply(settled.plan, io.run)
  untilRunning(wiring.own, io.run)
  await untilUnique(wiring.own, io.run)
  return encode(settled?.result ?? wiring.result, call.version)
}

/** What of a noted wiring stands on the node is made before the pool is asked, which may have to ask on it (dhcp): the interfaces of the result. */
async function move<C extends NetConf>(plugin: InterfacePlugin<C>, { at, io, version }: Call, { conf, pool, made }: Attempt<C>): Promise<Pick<Result, 'interfaces'>> {
  refuseNoted(plugin, at)
  const { own, result } = plugin.wire(conf, at, {}, nodeFacts)
  if (!pool) encode(result, version)
  made.record = note(plugin, at, own)
  made.links = made.record
  await apply({ put: own.filter(({ ns }) => ns === 'host'), drop: [] }, io.run)
  return result.interfaces ? { interfaces: result.interfaces } : {}
}

/** Throws CniError 7 for a pool's answer without an address, as the reference plugins do. */
export function requireAddress({ ips = [] }: Result, type: string): void {
  if (ips.length === 0) throw new CniError(CODE.config, 'IPAM plugin returned missing IP config', `${type} gave no address; leave "ipam" out for a link without addresses`)
}

async function undo<C extends NetConf>(plugin: InterfacePlugin<C>, { at, io }: Call, { pool, made, onNode }: Attempt<C>): Promise<void> {
  const ours =
    made.links &&
    (await onNode().then(
      () => true,
      (cause) => !isTaken(cause),
    ))
  if (ours) await apply({ put: [], drop: plugin.unwire(at) }, io.run).catch(unlessGone(plugin.unwire(at)))
  if (made.holds) await letGo(at, io.run)
  if (made.record) forget(plugin, at)
  if (made.addresses) await pool?.del()
  end(at)
}

function once<T>(work: () => Promise<T>): () => Promise<T> {
  let started: Promise<T> | undefined
  return () => (started ??= work())
}

// The creation of a link of our own met one that is there: somebody else's, or this attachment's from an ADD that went well.
function isTaken(cause: unknown): boolean {
  return cause instanceof ApplyError && cause.exists
}

/** A refused line in words: what stood there before may say better than the kernel why. */
function explained(cause: unknown, { ifname, netns }: Attachment, wiring: Wiring | undefined): unknown {
  if (isTaken(cause)) return new CniError(CODE.env, `Cannot create ${ifname} in ${netns}: a link of that name is there already`, 'it is left as it is; delete it, or use another CNI_IFNAME', { cause })
  try {
    if (cause instanceof ApplyError && cause.seen.length > 0) wiring?.settle?.(cause.seen)
  } catch (better) {
    return better
  }
  return cause
}

/** What of a wiring is left to make beside the links that are made while the pool works. Pure. */
export function beside(links: readonly Link[], { shared, own }: Wiring): Plan {
  const made = new Set(links.map((one) => handler(one.kind).key(one)))
  return { put: [...shared, ...own].filter((one) => !made.has(handler(one.kind).key(one))), drop: [] }
}

// A tool that fails altogether made no link before, and cannot say so: then the address need not stay taken for it.
function unlessGone(own: readonly Resource[]): (cause: Error) => void {
  return (cause) => {
    if (own.some((one) => one.kind !== 'link' || isLink(one.name, one.ns))) throw cause
  }
}

async function check<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  await (await poolOf(conf, call))?.check()
  const { shared, own, later = [] } = plugin.wire(conf, at, given, nodeFacts)
  const wrong = await differences([...shared, ...own, ...later], io.run)
  if (wrong.length > 0) throw new CniError(CODE.internal, `Cannot confirm ${at.ifname} of container ${at.containerId}: ${wrong[0]}`, wrong.join('; '))
}

// CNI spec 1.1.0 DEL: complete without error even if things are missing; the namespace may be gone.
async function del<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const known = forDel(call)
  const { run } = call.io
  if (plugin.unwire(known.at).some(mayBeThere(run))) run.prepare?.(BLIND)
  beginRemoval(known.at)
  const conf = readLoose(plugin.conf, call.raw)
  const pool = await poolOf(conf, call).catch((cause: Error) => log(`plumb: Cannot free addresses: ${cause.message}`, { network: call.at.network }))
  await remove(plugin, known, pool ?? undefined, () => plugin.unwireForeign?.(conf, known.at, run))
}

/** Links first, the address last: one that still answers is never given to another. */
async function remove<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, pool: Delegate | undefined, otherwise?: () => Promise<void> | undefined): Promise<void> {
  const own = plugin.unwire(call.at).filter(mayBeThere(call.io.run))
  const { already } = await apply({ put: [], drop: own }, call.io.run)
  if (own.every((resource) => already.includes(resource))) await otherwise?.()
  await letGo(call.at, call.io.run)
  forget(plugin, call.at)
  await pool?.del()
  end(call.at)
}

// No process is started for a link that the kernel does not know.
function mayBeThere(run: Run): (one: Resource) => boolean {
  return (one) => one.kind !== 'link' || run.link?.(one.name, one.ns) !== false
}

async function gc<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  const failures: Error[] = []
  const attempt = (work: Promise<void> | undefined) => work?.catch((cause: Error) => void failures.push(cause))
  if (valid) {
    await attempt(removeBut(valid, call))
    for (const owner of notedBut(plugin, at.network, valid)) await attempt(removeNoted(plugin, owner, io.run))
    if (valid.length === 0) await attempt(plugin.unshare?.(conf, io.run))
  }
  await attempt(poolOf(conf, call).then((pool) => pool?.gc()))
  if (valid && failures.length === 0) besides(at.network, valid).forget()
  throwAll(failures, call)
}

/** Removes the network's links that are none of these attachments'. */
async function removeBut(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const keep = new Set(valid.map(alias))
  besides(at.network, valid).wait()
  const stale = (await aliased(aliasPrefix(at.network), io.run)).filter((link) => !keep.has(link.alias as string))
  for (const link of stale) beginRemoval(ownerOf(link.alias as string, at.network))
  await apply({ put: [], drop: stale }, io.run)
  await letGoBut(at.network, valid, io.run)
}

async function poolOf<C extends NetConf>(conf: Partial<C>, call: Call): Promise<Delegate | undefined> {
  return conf.ipam?.type ? delegate(conf.ipam.type, call) : undefined
}
