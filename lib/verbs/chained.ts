import { ahead, apply } from '../apply.ts'
import { occupy } from '../busy.ts'
import { holds, isElsewhere, lapsed } from '../claimed.ts'
import type { Call, Done, Verbs } from '../cni.ts'
import { CniError, CODE } from '../errors.ts'
import { handler } from '../kinds/index.ts'
import { log } from '../log.ts'
import { NFT } from '../nft.ts'
import { differences } from '../observe.ts'
import type { ChainedPlugin, NetConf, Run, Wiring } from '../plugin.ts'
import { readRecord, record, recordPath, recordsOf, unrecord } from '../records.ts'
import { readLoose } from '../shape.ts'
import type { Claim, Plan, Resource } from '../state.ts'
import { nodeFacts } from '../sysctls.ts'
import { encode } from '../versions.ts'
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
  requirePod(call)
  const given = requirePrevious(call)
  for (const note of plugin.notes?.(conf) ?? []) log(`plumb: ${note}`, { network: at.network })
  const { shared, own, result } = plugin.wire(conf, at, given, nodeFacts)
  const text = encode(result, call.version)
  const path = recordPath(plugin.type, at)
  if (!occupy(path)) throw new CniError(CODE.tryLater, `Cannot begin: an earlier ${plugin.type} for ${at.ifname} of container ${at.containerId} is still at work`, 'it, or a tool that it started, has not ended for 30 s')
  const before = readRecord(path)?.own
  // A second ADD that wants the same, or one after a kill -9: what the first made is completed, and never missing for a moment.
  const isAgain = JSON.stringify(before) === JSON.stringify(own)
  if (before && !isAgain && before.some(isClaim)) await drop(path, io.run)
  else if (before) await apply({ put: [], drop: outdated(before, own) }, io.run)
  if (own.length === 0 && shared.length === 0) return { text }
  // It starts up while the record is written.
  if (own.some(({ kind }) => kind === 'element')) io.run.prepare?.(NFT)
  record(path, at, own)
  const undo = async () => void (isAgain || (await drop(path, io.run)))
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
  const { shared, own } = plugin.wire(conf, call.at, requirePrevious(call), nodeFacts)
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

function drop(path: string, run: Run): Promise<boolean> {
  return unrecord(path, async (own) => {
    for (const plan of removing(own, holds)) await apply(plan, run)
  })
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

/** What of an earlier ADD is in the way of a later one, or no longer wanted; the rest is changed in place. Pure. */
export function outdated(before: readonly Resource[], own: readonly Resource[]): Resource[] {
  const key = (one: Resource) => handler(one.kind).key(one)
  const kept = new Set(own.map(key))
  // A filter that is added again stands there twice.
  return before.flatMap((one) => (one.kind !== 'redirect' && kept.has(key(one)) ? [] : one.kind === 'redirect' || one.kind === 'qdisc' ? { ...one, replaced: true as const } : one))
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
