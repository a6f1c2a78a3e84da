import type { Call, Done, Verbs } from '../cni/call.ts'
import type { Attachment, InterfacePlugin, NetConf, Now, Wiring } from '../cni/plugin.ts'
import type { Result, Settled } from '../cni/result.ts'
import { encode } from '../cni/versions.ts'
import { begin, close, complete, type Found, ready } from '../journal/journal.ts'
import { following, isElsewhere } from '../journal/ports.ts'
import { BLIND } from '../os/batch-tools.ts'
import { log } from '../os/log.ts'
import { ApplyError, apply, type Begun, gradually } from '../state/apply.ts'
import { onlyOnce } from '../state/kinds/podlink.ts'
import { differences, present } from '../state/observe.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { untilRunning } from '../wiring/carrier.ts'
import { untilUnique } from '../wiring/duplicate-addresses.ts'
import { nodeFacts } from '../wiring/node-facts.ts'
import { readConf, requirePod, requirePrevious } from './call.ts'
import { beside, firstLinks, requireAddress } from './early.ts'
import { asTheirs, isForeign, logTheirs } from './foreign.ts'
import { together } from './fused.ts'
import { dropParts, noteFirst, noteParts } from './fused-parts.ts'
import { reserve } from './journal-parts.ts'
import { noteInPod, noteLent, ownIn, refuseLent, taken } from './link.ts'
import { unmoved } from './moved-devices.ts'
import { evict } from './orphans.ts'
import type { Delegate } from './pool.ts'
import { del, gc, poolOf, remove, unlessGone } from './removal.ts'
import { hold, letGo } from './shared-links.ts'

/** The verbs of a plugin that makes the container's link out of `wire`: all or nothing on ADD, by the owner alone on DEL. */
export function interfaces<C extends NetConf>(plugin: InterfacePlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    del: (call) => del(plugin, call),
    gc: (call) => gc(plugin, call),
    async status(call) {
      const conf = readConf(plugin, call)
      const whole = await together(plugin, conf, call)
      await (await poolOf(conf, call))?.status()
      ready()
      await whole.status?.(conf, call.io.run)
    },
  }
}

async function add<C extends NetConf>(alone: InterfacePlugin<C>, call: Call): Promise<Done> {
  const { at, io } = call
  requirePod(call)
  // The tools that every ADD needs start up while the configuration is read.
  if (!alone.inPod) io.run.prepare?.(BLIND)
  io.run.prepare?.(BLIND, at.netns)
  const conf = readConf(alone, call)
  const plugin = await together(alone, conf, call)
  prepare(plugin, conf, call)
  const pool = await poolOf(conf, call)
  pool?.valid()
  // Without a pool it is known already whether this version can show the result.
  if (!pool && !plugin.lends) encode(plugin.wire(conf, at, {}, nodeFacts).result, call.version)
  const links = firstLinks(plugin, conf, at, pool?.byLink === true)
  const found = await open(plugin, call, pool)
  const isNoted = found === 'nothing' && !plugin.inPod && !plugin.lends
  const attempt: Attempt<C> = { conf, pool, links, made: { addresses: false, links: false, parts: false, holds: false, noted: isNoted }, onNode: gradually({ put: links, drop: [] }, io.run) }
  try {
    const text = await make(plugin, call, attempt)
    return { text, undo: () => undo(plugin, call, attempt), delivered: () => complete(at) }
  } catch (cause) {
    // But for a device, as in `undo`: a link of the name that was there is not ours.
    if (isTaken(cause) && !plugin.inPod && !plugin.lends) attempt.made.links = false
    await undo(plugin, call, attempt).catch((lost: Error) => log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, { container: at.containerId }))
    throw explained(cause, at, attempt.wiring, io.run)
  }
}

// Opens the entry of the attachment, and removes first what a killed call left.
async function open<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, pool: Delegate | undefined): Promise<Found> {
  const link = plugin.inPod || plugin.lends ? undefined : plugin.unwire(call.at)
  const found = begin(call.at, link)
  if (found !== 'unfinished') return found
  await remove(plugin, call, pool)
  return begin(call.at, link)
}

// What was started before and has no input yet is not started again.
function prepare<C extends NetConf>({ tools }: InterfacePlugin<C>, conf: C, { at, io }: Call): void {
  io.run.prepare?.(BLIND, at.netns)
  for (const tool of tools?.(conf) ?? []) io.run.prepare?.(tool)
}

/** One ADD on its way: what it works with, and what it has made. */
interface Attempt<C> {
  readonly conf: C
  readonly pool: Delegate | undefined
  readonly links: readonly Resource[]
  readonly made: { addresses: boolean; links: boolean; parts: boolean; holds: boolean /** What removes the link stands in the journal by this ADD. */; noted: boolean }
  /** Makes `links`, or what of a noted wiring stands on the node. */
  onNode: Begun
  wiring?: Wiring
}

async function make<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, attempt: Attempt<C>): Promise<string> {
  const { at, io } = call
  const { conf, pool, links, made, onNode } = attempt
  if (plugin.inPod) {
    noteInPod(plugin, call)
    made.noted = true
  }
  if ((plugin.within?.(conf) ?? []).length > 0) {
    await noteFirst(plugin, links, call)
    made.parts = true
  }
  const moved = plugin.lends ? await move(plugin, call, attempt) : undefined
  // Another program's ADD may have half done its work when it fails; a second ADD of a live attachment keeps its address all the same.
  made.addresses = pool?.foreign === true && !pool.byLink && (plugin.inPod === true || (await present(plugin.unwire(at), io.run)).length === 0)
  if (pool?.byLink) {
    made.links = true
    await onNode.finish()
    // The link was not there before: nor was a lease that it is to be kept from.
    made.addresses = true
  } else if (pool?.foreign === false && links.length > 0) {
    // The node's side needs no address: it is made while the pool looks for one.
    made.links = true
    onNode.ahead()
  }
  // The first have made the links; these are for what goes with them.
  prepare(plugin, conf, call)
  const given = pool ? await pool.add() : {}
  made.addresses = true
  if (pool) requireAddress(given, conf.ipam?.type ?? '')
  await evict(given.ips ?? [], at, io.run)
  const wiring = plugin.wire(conf, at, moved ? { ...given, ...moved } : given, nodeFacts)
  attempt.wiring = wiring
  encode(wiring.result, call.version)
  made.links = true
  for (const link of plugin.holders?.(conf) ?? []) made.holds = hold(link, at) || made.holds
  return wire(wiring, call, attempt)
}

// Makes what a wiring is of, beside the links that are being made; what is said on stdout of it.
async function wire<C>(wiring: Wiring, { at, io, version }: Call, attempt: Attempt<C>): Promise<string> {
  const { links, onNode } = attempt
  await onNode.finish()
  const judge = wiring.settle?.(io.run)
  if (wiring.noted) attempt.made.parts = true
  await noteParts(wiring, at, io.run)
  for (const { own } of wiring.noted ?? []) await reserve(own, io.run)
  let [settled, text] = [undefined, ''] as [Settled | undefined, string]
  await apply(beside(links, wiring), io.run, () => {
    settled = judge?.()
    text = encode(settled?.result ?? wiring.result, version)
  })
  if (settled?.plan) await apply(settled.plan, io.run)
  untilRunning(wiring.own, io.run)
  await untilUnique(wiring.own, io.run)
  return text
}

/** What of a noted wiring stands on the node is made before a pool is asked that may have to ask on it (dhcp), and while any other looks for an address: the interfaces of the result. */
async function move<C extends NetConf>(plugin: InterfacePlugin<C>, { at, io, version }: Call, attempt: Attempt<C>): Promise<Pick<Result, 'interfaces'>> {
  const { conf, pool, made } = attempt
  await refuseLent(plugin, at, io.run)
  const { own, result } = plugin.wire(conf, at, {}, nodeFacts)
  if (!pool) encode(result, version)
  made.noted = noteLent(at, own)
  made.links = made.noted
  attempt.onNode = gradually({ put: own.filter(({ ns }) => ns === 'host'), drop: [] }, io.run)
  if (pool?.foreign === false && !pool.byLink) attempt.onNode.ahead()
  else await attempt.onNode.finish()
  return result.interfaces ? { interfaces: result.interfaces } : {}
}

async function undo<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call, { pool, made, onNode }: Attempt<C>): Promise<void> {
  const { at, io } = call
  const ours =
    made.links &&
    (await onNode.finish().then(
      () => true,
      // A device that meets its name in the pod has moved all the same.
      (cause) => (plugin.lends && made.noted) || !isTaken(cause),
    ))
  // A tool that fails must not keep the link from going.
  const lost = made.parts
    ? await dropParts(call).then(
        () => undefined,
        (cause: Error) => cause,
      )
    : undefined
  const isFirst = pool?.byLink === true && made.addresses
  const kept = isFirst ? await pool.del().catch((cause: Error) => cause) : undefined
  const own = ours ? ownIn(plugin.unwire(at), io.run) : []
  if (own.length > 0) await apply({ put: [], drop: own }, io.run).catch(unlessGone(own))
  if (lost) throw lost
  if (made.holds) await letGo(at, io.run)
  if (kept) throw kept
  if (made.addresses && !isFirst) await pool?.del()
  if (made.noted) close(at)
  else complete(at)
}

// The creation of a link of our own met one that is there: somebody else's, or this attachment's from an ADD that went well.
function isTaken(cause: unknown): boolean {
  return cause instanceof ApplyError && cause.exists
}

/** A refused line in words: what stood there before may say better than the kernel why. */
function explained(cause: unknown, at: Attachment, wiring: Wiring | undefined, now: Now): unknown {
  if (isTaken(cause)) return onlyOnce(cause as ApplyError) ?? taken(at, { cause })
  if (cause instanceof ApplyError && /Exchange full/.test(cause.said) && cause.resource.kind === 'link') return bridgeFull(cause.resource.port?.master, cause)
  try {
    if (cause instanceof ApplyError) wiring?.settle?.(now)()
  } catch (better) {
    if (better instanceof CniError && better.code === CODE.config) return better
  }
  return cause
}

// EXFULL is what a bridge of Linux says that has BR_MAX_PORTS - 1 ports (net/bridge/br_if.c, find_portno).
function bridgeFull(bridge: string | undefined, cause: Error): CniError {
  return new CniError(
    CODE.tryLater,
    `Cannot add a port to bridge ${bridge}: it has 1023 ports, as many as a bridge can have`,
    `delete pods, run GC to remove those of containers that no longer exist, or use a second network with another bridge; ${cause.message}`,
    { cause },
  )
}

async function check<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  await (await poolOf(conf, call))?.check()
  const whole = await together(plugin, conf, call)
  const isTheirs = isForeign(plugin, at, given)
  const { shared, own, later = [], noted = [] } = (isTheirs ? plugin : whole).wire(conf, at, given, nodeFacts)
  const parts = noted.flatMap((one) => following(one.own, (claim) => !isElsewhere(claim)))
  const wanted = isTheirs ? asTheirs([...shared, ...own, ...later]) : [...shared, ...own, ...later, ...parts]
  const wrong = [...(await differences(unmoved(at, wanted), io.run)), ...((isTheirs && (await whole.checkForeign?.(conf, at, given, io.run))) || [])]
  if (wrong.length > 0) throw new CniError(CODE.internal, `Cannot confirm ${at.ifname} of container ${at.containerId}: ${wrong[0]}`, wrong.join('; '))
  if (isTheirs && wanted.length > 0) logTheirs(conf.type, at)
}
