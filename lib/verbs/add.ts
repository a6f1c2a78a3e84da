import type { Call, Done } from '../cni/call.ts'
import type { Attachment, InterfacePlugin, NetConf, NodeFacts, Now, Wiring } from '../cni/plugin.ts'
import type { Result } from '../cni/result.ts'
import { encode } from '../cni/versions.ts'
import { begin, close, complete, readEntry } from '../journal/journal.ts'
import { following, holds } from '../journal/ports.ts'
import { BLIND } from '../os/batch-tools.ts'
import { forgetAddresses } from '../os/conntrack.ts'
import { log } from '../os/log.ts'
import { spanned } from '../os/spans.ts'
import { ApplyError, apply, type Begun, gradually } from '../state/apply.ts'
import { type Claim, isClaim } from '../state/kinds/claim.ts'
import { handler } from '../state/kinds/index.ts'
import type { Link } from '../state/kinds/link.ts'
import { present } from '../state/observe.ts'
import type { Plan, Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { type Ip, split } from '../text/ip.ts'
import type { IfName } from '../text/values.ts'
import { announceAddresses, announceGateways } from '../wiring/announcement.ts'
import { untilRunning } from '../wiring/carrier.ts'
import { untilUnique } from '../wiring/duplicate-addresses.ts'
import { factsOfAdd } from '../wiring/node-facts.ts'
import { readConf, requirePod } from './call.ts'
import { dropParts, noteFirst, noteParts, together } from './fused.ts'
import { reserve } from './journal-parts.ts'
import { noteInPod, noteLent, ownIn, refuseLent, taken } from './link.ts'
import { hasLostPorts, joinLostPorts } from './lost-ports.ts'
import { removeFormerOwner } from './orphans.ts'
import type { Delegate } from './pool.ts'
import { poolOf, remove, unlessGone } from './removal.ts'
import { hold, leaveSharedLinks } from './shared-links.ts'

/** A parsed ADD. Its configuration is valid. */
interface Request<C extends NetConf> {
  readonly call: Call
  /** The interface plugin, together with the chained plugins that work within its calls. */
  readonly plugin: InterfacePlugin<C>
  readonly conf: C
  readonly pool: Delegate | undefined
  readonly node: NodeFacts
  /** The links that need no address. They are made while the pool looks for one. */
  readonly links: readonly Resource[]
}

/** The objects that an ADD has made so far. After a failure `undo` removes them. */
interface Made {
  /** The attachment was not there before this ADD. */
  isNew: boolean
  /** The addresses of an earlier attachment of this name whose namespace is gone. */
  former: readonly Ip[]
  addresses: boolean
  links: boolean
  /** Chained plugins wrote to the journal within this call. */
  parts: boolean
  /** The attachment holds a shared link. */
  holds: boolean
  /** This ADD wrote to the journal how to remove the link. */
  noted: boolean
  /** The bridge that other pods have lost. This ADD makes it again. */
  lostBridge: IfName | undefined
  /** Makes the first links. For a device of the node, makes the links that stay on the node. */
  firstLinks: Begun
  wiring?: Wiring
}

/**
 * ADD of an interface plugin, in five steps. A failure undoes all of them.
 *
 * 1. `parse` reads the configuration and finds the pool. It refuses bad input and changes nothing.
 * 2. `openEntry` opens the attachment's entry in the journal. First it removes the objects of a killed call.
 * 3. `takeAddress` asks the pool for addresses. The first links are made meanwhile.
 * 4. `wire` computes the resources and the result from the configuration and the addresses. It is pure.
 * 5. `applyWiring` makes the resources.
 */
export async function add<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<Done> {
  const request = await spanned('parse', () => parse(plugin, call))
  const made = await spanned('open entry', () => openEntry(request))
  try {
    const given = await spanned('take address', () => takeAddress(request, made))
    const wiring = await spanned('wire', () => wire(request, given))
    made.wiring = wiring
    const text = await spanned('apply wiring', () => applyWiring(wiring, request, made))
    return { text, undo: () => undo(request, made), delivered: () => complete(call.at) }
  } catch (cause) {
    if (isTaken(cause) && !request.plugin.inPod && !request.plugin.movesDevice) made.links = false
    await undo(request, made).catch((lost: Error) =>
      log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, {
        container: call.at.containerId,
      }),
    )
    throw explained(cause, call.at, made.wiring, call.io.run)
  }
}

// Every ADD needs the same tools. They start up while this function reads the configuration.
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
  const node = factsOfAdd()
  // Without a pool the result is known now. `encode` throws when the CNI version of the call cannot express it.
  if (!pool && !plugin.movesDevice) encode(plugin.wire(conf, at, {}, node).result, call.version)
  return { call, plugin, conf, pool, node, links: firstLinks(plugin, conf, at, node, pool?.byLink === true) }
}

async function openEntry<C extends NetConf>({ call, plugin, pool, links }: Request<C>): Promise<Made> {
  // Links that exist only in the pod, and devices of the node, are noted later: after the check that their name is free
  // in the pod.
  const link = plugin.inPod || plugin.movesDevice ? undefined : plugin.unwire(call.at)
  const found = begin(call.at, link)
  // A runtime may start a container again with the same id and another namespace. It gets the address that it had.
  const former = found === 'gone' ? ((readEntry(call.at)?.ips ?? []) as readonly Ip[]) : []
  if (found === 'unfinished' || found === 'gone') {
    await remove(plugin, call, pool)
    begin(call.at, link)
  }
  const bridge = links.find((one) => one.kind === 'link' && one.type === 'bridge' && one.shared) as Link | undefined
  return {
    isNew: found !== 'attached',
    former,
    addresses: false,
    links: false,
    parts: false,
    holds: false,
    noted: found !== 'attached' && found !== 'unfinished' && link !== undefined,
    lostBridge: bridge && hasLostPorts(bridge.name, call.io.run) ? bridge.name : undefined,
    firstLinks: gradually({ put: links, drop: [] }, call.io.run),
  }
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
  const moved = plugin.movesDevice ? await moveDevice(request, made) : {}
  // A foreign IPAM plugin may fail after half of its work, so its DEL is called then. A second ADD of a live attachment
  // must not free its address.
  if (pool?.foreign === true && !pool.byLink)
    made.addresses = plugin.inPod === true || (await present(plugin.unwire(at), io.run)).length === 0
  if (pool?.byLink) {
    made.links = true
    await made.firstLinks.finish()
    // The link is new, so there is no earlier lease to keep.
    made.addresses = true
  } else if (pool?.foreign === false && links.length > 0) {
    // The links on the node need no address. `ip` makes them while the pool looks for one.
    made.links = true
    made.firstLinks.ahead()
  }
  // The tools that were started have made the first links. This starts the tools for the next batches.
  prepareTools(plugin, conf, call)
  const given = pool ? await pool.add(made.former) : {}
  made.addresses = true
  if (pool) requireAddress(given, conf.ipam?.type ?? '')
  await removeFormerOwner(given.ips ?? [], at, io.run)
  // A second ADD of a live attachment leaves its connections alone.
  if (made.isNew) forgetAddresses((given.ips ?? []).map(({ address }) => split(address).ip))
  return { ...given, ...moved }
}

// A device of the node moves into the pod. The dhcp pool asks through the device, so the move ends first. It also ends
// first for a pool that is another program. With any other pool of this executable the device moves while the pool
// looks for an address.
async function moveDevice<C extends NetConf>(
  { call, plugin, conf, pool, node }: Request<C>,
  made: Made,
): Promise<Pick<Result, 'interfaces'>> {
  const { at, io, version } = call
  await refuseLent(plugin, at, io.run)
  const { own, result } = plugin.wire(conf, at, {}, node)
  if (!pool) encode(result, version)
  made.noted = noteLent(at, own)
  made.links = made.noted
  made.firstLinks = gradually({ put: own.filter(({ ns }) => ns === 'host'), drop: [] }, io.run)
  if (pool?.foreign === false && !pool.byLink) made.firstLinks.ahead()
  else await made.firstLinks.finish()
  return result.interfaces ? { interfaces: result.interfaces } : {}
}

function wire<C extends NetConf>({ call, plugin, conf, node }: Request<C>, given: Result): Wiring {
  const wiring = plugin.wire(conf, call.at, given, node)
  // `encode` throws when the CNI version cannot express the result. That is before the rest is made.
  encode(wiring.result, call.version)
  return wiring
}

// Returns the text for stdout.
async function applyWiring<C extends NetConf>(
  wiring: Wiring,
  { call, plugin, conf, links }: Request<C>,
  made: Made,
): Promise<string> {
  const { at, io, version } = call
  made.links = true
  for (const link of plugin.holders?.(conf) ?? []) made.holds = hold(link, at) || made.holds
  await made.firstLinks.finish()
  if (made.lostBridge) await joinLostPorts(made.lostBridge, io.run)
  if (wiring.noted) made.parts = true
  await noteParts(wiring, at, io.run)
  for (const { own } of wiring.noted ?? []) await reserve(own, io.run)
  await apply(remaining(links, wiring), io.run)
  const settled = wiring.settle?.(io.run)
  const text = encode(settled?.result ?? wiring.result, version)
  if (settled?.plan) await apply(settled.plan, io.run)
  untilRunning(wiring.own, io.run)
  await untilUnique(wiring.own, io.run)
  announceAddresses(wiring.own, io.run)
  // The pods that had lost the bridge may know the MAC address that it had before.
  if (made.lostBridge) announceGateways(settled?.plan?.put ?? [], io.run)
  return text
}

async function undo<C extends NetConf>({ call, plugin, pool }: Request<C>, made: Made): Promise<void> {
  const { at, io } = call
  // With `noted` the device has moved into the pod although its name was taken there.
  const isOurs = (cause: unknown) => (plugin.movesDevice && made.noted) || !isTaken(cause)
  const ours = made.links && (await made.firstLinks.finish().then(() => true, isOurs))
  // The link must go also when a tool fails.
  const lost = made.parts ? await failureOf(dropParts(call)) : undefined
  const isFirst = pool?.byLink === true && made.addresses
  const kept = isFirst ? await failureOf(pool.del()) : undefined
  const own = ours ? ownIn(plugin.unwire(at), io.run) : []
  if (own.length > 0) await apply({ put: [], drop: own }, io.run).catch(unlessGone(own))
  if (lost) throw lost
  if (made.holds) await leaveSharedLinks(at, io.run)
  if (kept) throw kept
  if (made.addresses && !isFirst) await pool?.del()
  if (made.noted) close(at)
  else complete(at)
}

function failureOf(work: Promise<unknown>): Promise<Error | undefined> {
  return work.then(
    () => undefined,
    (cause: Error) => cause,
  )
}

// Does not start a tool again that is running and waits for its input.
function prepareTools<C extends NetConf>({ tools }: InterfacePlugin<C>, conf: C, { at, io }: Call): void {
  io.run.prepare?.(BLIND, at.netns)
  for (const tool of tools?.(conf) ?? []) io.run.prepare?.(tool)
}

// The creation of a link failed because the name exists. The link belongs to another program, or to an earlier
// successful ADD of this attachment.
function isTaken(cause: unknown): boolean {
  return cause instanceof ApplyError && cause.exists
}

/** The error for a refused line. An object that existed before may explain it better than the kernel's message. */
function explained(cause: unknown, at: Attachment, wiring: Wiring | undefined, now: Now): unknown {
  if (isTaken(cause)) return onlyOnce(cause as ApplyError) ?? taken(at, { cause })
  if (cause instanceof ApplyError && /Exchange full/.test(cause.said) && cause.resource.kind === 'link')
    return bridgeFull(cause.resource.port?.master, cause)
  try {
    if (cause instanceof ApplyError) wiring?.settle?.(now)
  } catch (better) {
    if (better instanceof CniError && better.code === CODE.config) return better
  }
  return cause
}

// The error when the VLAN exists already on its master, in any namespace. Undefined for any other failure.
function onlyOnce(cause: ApplyError): CniError | undefined {
  const { resource } = cause
  if (resource.kind !== 'link' || resource.type !== 'vlan' || !resource.born) return undefined
  const { born, like } = resource
  return new CniError(
    CODE.tryLater,
    `Cannot create VLAN ${like?.id} of ${born.master}: it is there already, and a link has each of its VLANs once`,
    'another container or the node itself has it; use another "vlanId" or "master", or a bridge of that VLAN',
    { cause },
  )
}

// A Linux bridge with BR_MAX_PORTS - 1 ports answers EXFULL (net/bridge/br_if.c, find_portno).
function bridgeFull(bridge: string | undefined, cause: Error): CniError {
  const advice = 'delete pods, run GC to remove those of containers that no longer exist'
  return new CniError(
    CODE.tryLater,
    `Cannot add a port to bridge ${bridge}: it has 1023 ports, as many as a bridge can have`,
    `${advice}, or use a second network with another bridge; ${cause.message}`,
    { cause },
  )
}

/**
 * The links that ADD makes before the pool has answered. With `byLink` the pool asks through the container's link. Then
 * all links are made first, except shared links and the peer of a veth pair. The daemon switches on the links in the
 * pod after their settings are made.
 */
export function firstLinks<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  conf: C,
  at: Attachment,
  node: NodeFacts,
  byLink: boolean,
): readonly Resource[] {
  const early = plugin.links?.(conf, at, node) ?? []
  // `moveDevice` (add.ts) moves a lent device into the pod before the pool is asked.
  if (!byLink || plugin.movesDevice) return early
  const { put } = remaining(early, plugin.wire(conf, at, {}, node))
  const rest = put.filter((one) => one.kind === 'link').filter(({ type, shared }) => type !== 'peer' && !shared)
  return [...early, ...rest.map((one) => (one.ns === 'host' ? one : { ...one, up: false }))]
}

/**
 * The resources of a wiring that are still to be made. Left out are `links`, because they are made while the pool
 * works, and the claims, because they are reserved earlier. `stands` tells whether the attachment has a claim. Pure,
 * except for `stands`.
 */
export function remaining(
  links: readonly Resource[],
  { shared, own, noted = [] }: Wiring,
  stands: (claim: Claim) => boolean = holds,
): Plan {
  const made = new Set(links.map((one) => handler(one.kind).key(one)))
  const parts = noted.flatMap((one) => following(one.own, stands)).filter((one) => !isClaim(one))
  return { put: [...shared, ...own, ...parts].filter((one) => !made.has(handler(one.kind).key(one))), drop: [] }
}

/** Throws CniError 7 when the pool's answer has no address. The reference plugins do the same. */
export function requireAddress({ ips = [] }: Result, type: string): void {
  if (ips.length === 0)
    throw new CniError(
      CODE.config,
      'IPAM plugin returned missing IP config',
      `${type} gave no address; leave "ipam" out for a link without addresses`,
    )
}
