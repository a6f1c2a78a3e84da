import type { Call, Done } from '../cni/call.ts'
import type { Attachment, InterfacePlugin, NetConf, Now, Wiring } from '../cni/plugin.ts'
import type { Result, Settled } from '../cni/result.ts'
import { encode } from '../cni/versions.ts'
import { begin, close, complete } from '../journal/journal.ts'
import { BLIND } from '../os/batch-tools.ts'
import { log } from '../os/log.ts'
import { ApplyError, apply, type Begun, gradually } from '../state/apply.ts'
import { onlyOnce } from '../state/kinds/podlink.ts'
import { present } from '../state/observe.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { untilRunning } from '../wiring/carrier.ts'
import { untilUnique } from '../wiring/duplicate-addresses.ts'
import { nodeFacts } from '../wiring/node-facts.ts'
import { readConf, requirePod } from './call.ts'
import { beside, firstLinks, requireAddress } from './first-links.ts'
import { together } from './fused.ts'
import { dropParts, noteFirst, noteParts } from './fused-parts.ts'
import { reserve } from './journal-parts.ts'
import { noteInPod, noteLent, ownIn, refuseLent, taken } from './link.ts'
import { evict } from './orphans.ts'
import type { Delegate } from './pool.ts'
import { poolOf, remove, unlessGone } from './removal.ts'
import { hold, letGo } from './shared-links.ts'

/** An ADD that can begin: nothing in it is wrong by itself. */
interface Request<C extends NetConf> {
  readonly call: Call
  /** With the chained plugins that work within its calls. */
  readonly plugin: InterfacePlugin<C>
  readonly conf: C
  readonly pool: Delegate | undefined
  /** The links that are made before there is an address. */
  readonly links: readonly Resource[]
}

/** What an ADD has made so far: a failure undoes that. */
interface Made {
  addresses: boolean
  links: boolean
  /** What chained plugins noted within this call. */
  parts: boolean
  /** A shared link is held. */
  holds: boolean
  /** The journal says what removes the link, by this ADD. */
  noted: boolean
  /** Makes the first links, or of a device what stands on the node. */
  firstLinks: Begun
  wiring?: Wiring
}

/**
 * ADD of an interface plugin: all or nothing, in five steps.
 *
 * 1. `parse` reads configuration and pool, and refuses what is wrong. Nothing is changed yet.
 * 2. `openEntry` opens the attachment's entry in the journal, and first undoes what a killed call left.
 * 3. `takeAddress` asks the pool, while the first links are made beside it.
 * 4. `wire` makes resources and the result of both: pure.
 * 5. `applyWiring` makes the resources.
 */
export async function add<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<Done> {
  const request = await parse(plugin, call)
  const made = await openEntry(request)
  try {
    const given = await takeAddress(request, made)
    const wiring = wire(request, given)
    made.wiring = wiring
    const text = await applyWiring(wiring, request, made)
    return { text, undo: () => undo(request, made), delivered: () => complete(call.at) }
  } catch (cause) {
    if (isTaken(cause) && !request.plugin.inPod && !request.plugin.lends) made.links = false
    await undo(request, made).catch((lost: Error) => log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, { container: call.at.containerId }))
    throw explained(cause, call.at, made.wiring, call.io.run)
  }
}

// The tools that every ADD needs start up while the configuration is read.
async function parse<C extends NetConf>(alone: InterfacePlugin<C>, call: Call): Promise<Request<C>> {
  const { at, io } = call
  requirePod(call)
  if (!alone.inPod) io.run.prepare?.(BLIND)
  io.run.prepare?.(BLIND, at.netns)
  const conf = readConf(alone, call)
  const plugin = await together(alone, conf, call)
  prepareTools(plugin, conf, call)
  const pool = await poolOf(conf, call)
  pool?.valid()
  // Without a pool it is known already whether this version can show the result.
  if (!pool && !plugin.lends) encode(plugin.wire(conf, at, {}, nodeFacts).result, call.version)
  return { call, plugin, conf, pool, links: firstLinks(plugin, conf, at, pool?.byLink === true) }
}

async function openEntry<C extends NetConf>({ call, plugin, pool, links }: Request<C>): Promise<Made> {
  // What stands in the pod alone, and a device, are noted when it is known that their name is free there.
  const link = plugin.inPod || plugin.lends ? undefined : plugin.unwire(call.at)
  const found = begin(call.at, link)
  if (found === 'unfinished') {
    await remove(plugin, call, pool)
    begin(call.at, link)
  }
  return { addresses: false, links: false, parts: false, holds: false, noted: found === 'nothing' && link !== undefined, firstLinks: gradually({ put: links, drop: [] }, call.io.run) }
}

async function takeAddress<C extends NetConf>(request: Request<C>, made: Made): Promise<Result> {
  const { call, plugin, conf, pool, links } = request
  const { at, io } = call
  if (plugin.inPod) {
    noteInPod(plugin, call)
    made.noted = true
  }
  if ((plugin.within?.(conf) ?? []).length > 0) {
    await noteFirst(plugin, links, call)
    made.parts = true
  }
  const moved = plugin.lends ? await moveDevice(request, made) : {}
  // Another program's ADD may have half done its work when it fails; a second ADD of a live attachment keeps its address all the same.
  made.addresses = pool?.foreign === true && !pool.byLink && (plugin.inPod === true || (await present(plugin.unwire(at), io.run)).length === 0)
  if (pool?.byLink) {
    made.links = true
    await made.firstLinks.finish()
    // The link was not there before, so neither was a lease to keep.
    made.addresses = true
  } else if (pool?.foreign === false && links.length > 0) {
    // The node's side needs no address: it is made while the pool looks for one.
    made.links = true
    made.firstLinks.ahead()
  }
  // Those that were started have made the first links. These are for what comes next.
  prepareTools(plugin, conf, call)
  const given = pool ? await pool.add() : {}
  made.addresses = true
  if (pool) requireAddress(given, conf.ipam?.type ?? '')
  await evict(given.ips ?? [], at, io.run)
  return { ...given, ...moved }
}

// What of a device's way stands on the node is made before a pool is asked that may ask through the device (dhcp), and while any other looks for an address.
async function moveDevice<C extends NetConf>({ call, plugin, conf, pool }: Request<C>, made: Made): Promise<Pick<Result, 'interfaces'>> {
  const { at, io, version } = call
  await refuseLent(plugin, at, io.run)
  const { own, result } = plugin.wire(conf, at, {}, nodeFacts)
  if (!pool) encode(result, version)
  made.noted = noteLent(at, own)
  made.links = made.noted
  made.firstLinks = gradually({ put: own.filter(({ ns }) => ns === 'host'), drop: [] }, io.run)
  if (pool?.foreign === false && !pool.byLink) made.firstLinks.ahead()
  else await made.firstLinks.finish()
  return result.interfaces ? { interfaces: result.interfaces } : {}
}

function wire<C extends NetConf>({ call, plugin, conf }: Request<C>, given: Result): Wiring {
  const wiring = plugin.wire(conf, call.at, given, nodeFacts)
  // A result that this version cannot show is refused before the rest is made.
  encode(wiring.result, call.version)
  return wiring
}

// What is printed.
async function applyWiring<C extends NetConf>(wiring: Wiring, { call, plugin, conf, links }: Request<C>, made: Made): Promise<string> {
  const { at, io, version } = call
  made.links = true
  for (const link of plugin.holders?.(conf) ?? []) made.holds = hold(link, at) || made.holds
  await made.firstLinks.finish()
  const judge = wiring.settle?.(io.run)
  if (wiring.noted) made.parts = true
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

async function undo<C extends NetConf>({ call, plugin, pool }: Request<C>, made: Made): Promise<void> {
  const { at, io } = call
  const ours =
    made.links &&
    (await made.firstLinks.finish().then(
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

// What was started and has no input yet is not started again.
function prepareTools<C extends NetConf>({ tools }: InterfacePlugin<C>, conf: C, { at, io }: Call): void {
  io.run.prepare?.(BLIND, at.netns)
  for (const tool of tools?.(conf) ?? []) io.run.prepare?.(tool)
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
