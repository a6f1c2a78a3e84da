import { ahead, apply } from '../apply.ts'
import { occupy } from '../busy.ts'
import { holds, isElsewhere, lapsed } from '../claimed.ts'
import type { Call, Done, Verbs } from '../cni.ts'
import { CniError, CODE } from '../errors.ts'
import { BLIND } from '../iproute.ts'
import { log } from '../log.ts'
import { inodeOf } from '../netns.ts'
import { NFT } from '../nft.ts'
import { differences } from '../observe.ts'
import type { ChainedPlugin, NetConf, NodeFacts, Run, Wiring } from '../plugin.ts'
import { type Note, readRecord, record, recordPath, recordsOf, unrecord } from '../records.ts'
import type { Result } from '../result.ts'
import type { Setting } from '../settings.ts'
import { readLoose } from '../shape.ts'
import type { Claim, Kind, Plan, Resource } from '../state.ts'
import { nodeFacts } from '../sysctls.ts'
import { title } from '../title.ts'
import { encode } from '../versions.ts'
import { isLastOf } from '../vrfs.ts'
import { forDel, readConf, requirePod, requirePrevious, validAttachments } from './call.ts'
import { throwAll } from './failures.ts'

/** The verbs of a plugin that adds to what others made. A record of what it makes is written before it is made, so that DEL and GC need nothing else. */
export function chained<C extends NetConf>(plugin: ChainedPlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    async del(call) {
      const { at } = forDel(call)
      if (!(await drop(recordPath(plugin.type, at), call.io.run))) await plugin.unwireForeign?.(readLoose(plugin.conf, call.raw), at, call.io.run)
    },
    gc: (call) => gc(plugin, call),
    async status(call) {
      await plugin.status?.(readConf(plugin, call), call.io.run)
    },
  }
}

async function add<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<Done> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  plugin.judge?.(call.text)
  requirePod(call)
  const given = requirePrevious(call)
  for (const note of plugin.notes?.(conf) ?? []) log(`plumb: ${note}`, { network: at.network })
  const planned = (node: NodeFacts) => {
    const wiring = plugin.wire(conf, at, given, node)
    return { ...wiring, text: encode(wiring.result, call.version) }
  }
  // What has to be refused is, before anything else.
  const early = planned(nodeFacts)
  const path = recordPath(plugin.type, at)
  begin(path, plugin, call)
  const { shared, own, text } = plugin.look ? planned(facts(plugin, conf, call, given)) : early
  const before = readRecord(path)?.own
  // A second ADD that wants the same, or one after a kill -9: what the first made is completed, and never missing for a moment.
  const isAgain = JSON.stringify(before) === JSON.stringify(own)
  if (before && !isAgain) await drop(path, io.run)
  if (own.length === 0 && shared.length === 0) return { text }
  // It starts up while the record is written.
  if (own.some(({ kind }) => kind === 'element')) io.run.prepare?.(NFT)
  if (own.some(({ kind, ns }) => (kind === 'setting' || kind === 'route') && ns === at.netns)) io.run.prepare?.(BLIND, at.netns)
  record(path, at, own)
  const undo = async () => void (isAgain || (await drop(path, io.run, true)))
  try {
    await reserve(own.filter(isClaim), io.run)
    const { links, rest } = making({ shared, own }, holds)
    // What a link needs goes on beside the rest.
    ahead(links, io.run)
    await apply(rest, io.run)
    await apply(links, io.run)
    return { text, undo }
  } catch (cause) {
    await undo().catch((lost: Error) => log(`plumb: Cannot undo a failed ADD, the next ADD or DEL will: ${lost.message}`, { container: at.containerId }))
    throw cause
  }
}

async function check<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<void> {
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  const { shared, own } = plugin.wire(conf, call.at, given, facts(plugin, conf, call, given))
  const wrong = await differences([...shared, ...following(own, (claim) => !isElsewhere(claim))], call.io.run)
  if (wrong.length > 0) throw new CniError(CODE.internal, `Cannot confirm what ${plugin.type} made for container ${call.at.containerId}: ${wrong[0]}`, wrong.join('; '))
}

async function gc<C extends NetConf>(plugin: ChainedPlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  const valid = validAttachments(call)
  if (!valid) return
  const keep = new Set(valid.map((owner) => recordPath(plugin.type, owner)))
  const failures: Error[] = []
  const attempt = (work: Promise<unknown> | undefined) => work?.catch((cause: Error) => void failures.push(cause))
  for (const path of recordsOf(plugin.type, at.network)) if (!keep.has(path)) await attempt(drop(path, io.run))
  if (valid.length === 0) await attempt(plugin.unshare?.(conf, io.run))
  throwAll(failures, call)
}

// Whoever is in the way of a claim and whose pod is gone has waited for a DEL in vain: it gets it now.
async function reserve(claims: readonly Claim[], run: Run): Promise<void> {
  if (claims.length === 0) return
  try {
    await apply({ put: claims, drop: [] }, run)
  } catch (cause) {
    const gone = lapsed(claims)
    if (gone.length === 0) throw cause
    for (const path of gone) {
      log('plumb: a host port was still held for a container whose namespace is gone: it is taken from it', { container: readRecord(path)?.owner.containerId ?? '' })
      await drop(path, run)
    }
    await apply({ put: claims, drop: [] }, run)
  }
}

// `isFailed`: the ADD that made it fails, so that nobody relies on any of it yet.
function drop(path: string, run: Run, isFailed = false): Promise<boolean> {
  return unrecord(path, async (note) => {
    for (const plan of removing(note ? reachable(note, run, isFailed) : [], holds)) {
      const { already } = await apply(plan, run)
      for (const one of already) if (one.kind === 'setting') log(`plumb: Cannot put ${title(one)} back to what it was`, { container: note?.owner.containerId ?? '' })
    }
  })
}

// What was in a pod has gone with it, and settings with their link: no process is started for those.
function reachable(note: Note, run: Run, isFailed: boolean): Resource[] {
  const inPod = isThere(note)
  return note.own
    .filter((one) => one.kind !== 'vrf' || (inPod && occupy(podOf(note.inode)) && isLastOf(one, note.owner.ifname)))
    .filter((one) => (one.ns === 'host' || inPod) && (!ON_LINK.includes(one.kind) || run.link?.((one as Setting).dev, one.ns) !== false))
    .map((one) => {
      if (one.kind !== 'sysctl' || !isFailed) return one
      const { stays: _, ...rest } = one
      return rest
    })
}

// These go with their link; rules, say, do not.
const ON_LINK: readonly Kind[] = ['setting', 'route', 'unrouted', 'rerouted']

// The path may be another pod's by now.
function isThere({ netns, inode }: Note): boolean {
  return netns !== undefined && inode !== undefined && inodeOf(netns) === inode
}

function podOf(inode: number | undefined): string {
  return `pod ${inode}`
}

function begin<C extends NetConf>(path: string, plugin: ChainedPlugin<C>, { at }: Call): void {
  const late = (what: string) => new CniError(CODE.tryLater, `Cannot begin: ${what} is still at work`, 'it, or a tool that it started, has not ended for 30 s')
  if (!occupy(path)) throw late(`an earlier ${plugin.type} for ${at.ifname} of container ${at.containerId}`)
  // What is looked at must not change before what follows from it is made.
  if (plugin.look && !occupy(podOf(at.netns && inodeOf(at.netns)))) throw late(`another plugin in ${at.netns}`)
}

/** What `wire` of a plugin is given of the node and the pod as they are. */
export function facts<C extends NetConf>(plugin: ChainedPlugin<C>, conf: C, { at }: Call, given: Result): NodeFacts {
  if (!plugin.look) return nodeFacts
  const note = readRecord(recordPath(plugin.type, at))
  const before = plugin.look(conf, at, given, note && note.netns === at.netns && isThere(note) ? note.own : [])
  // The node's own are asked for only when they are needed.
  return Object.create(nodeFacts, { before: { value: before } })
}

/** What ADD makes once its claims are decided, given which of them stand: what links need gets its input first. Pure. */
export function making({ shared, own }: Pick<Wiring, 'shared' | 'own'>, stands: (claim: Claim) => boolean): { readonly links: Plan; readonly rest: Plan } {
  const links = shared.filter(({ kind }) => kind === 'link')
  return { links: { put: links, drop: [] }, rest: { put: [...shared.filter((one) => !links.includes(one)), ...following(own, stands).filter((one) => !isClaim(one))], drop: [] } }
}

/** What removes what was noted, in order, given which claims stand. Claims last: another may have the port only when nothing that it adds can meet what is removed here. Pure. */
export function removing(own: readonly Resource[], stands: (claim: Claim) => boolean): Plan[] {
  const held = following(own, stands)
  return [held.filter((one) => !isClaim(one)), held.filter(isClaim)].map((drop) => ({ put: [], drop }))
}

// What follows a claim belongs to it: where that is another's, refused, or not made yet when the call was killed, the rest is none of ours. Each once: two ports may lead to one place.
function following(own: readonly Resource[], stands: (claim: Claim) => boolean): Resource[] {
  let mine = true
  const held = own.filter((one) => {
    if (isClaim(one)) mine = stands(one)
    return mine
  })
  return [...new Map(held.map((one) => [JSON.stringify(one), one])).values()]
}

/** Whether a resource is a host port reserved as a file. */
export function isClaim(one: Resource): one is Claim {
  return one.kind === 'claim'
}
