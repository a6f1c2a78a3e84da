import { ahead, apply } from '../apply.ts'
import { occupy } from '../busy.ts'
import { holds, isElsewhere } from '../claimed.ts'
import type { Call, Done, Verbs } from '../cni.ts'
import { CniError, CODE } from '../errors.ts'
import { log } from '../log.ts'
import { NFT } from '../nft.ts'
import { differences } from '../observe.ts'
import type { ChainedPlugin, NetConf, Wiring } from '../plugin.ts'
import { readRecord, record, recordPath, recordsOf } from '../records.ts'
import { readLoose } from '../shape.ts'
import type { Claim, Plan } from '../state.ts'
import { nodeFacts } from '../sysctls.ts'
import { encode } from '../versions.ts'
import { forDel, readConf, requirePod, requirePrevious, validAttachments } from './call.ts'
import { throwAll } from './failures.ts'
import { dropNoted, following, isClaim, reserve } from './noted.ts'

/** The verbs of a plugin that adds to what others made. A record of what it makes is written before it is made, so that DEL and GC need nothing else. */
export function chained<C extends NetConf>(plugin: ChainedPlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    async del(call) {
      const { at } = forDel(call)
      const found = await dropNoted([recordPath(plugin.type, at)], call.io.run)
      if (found.length === 0) await plugin.unwireForeign?.(readLoose(plugin.conf, call.raw), at, call.io.run)
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
  if (before && !isAgain) await dropNoted([path], io.run)
  if (own.length === 0 && shared.length === 0) return { text }
  // It starts up while the record is written.
  if (own.some(({ kind }) => kind === 'element')) io.run.prepare?.(NFT)
  record(path, at, own)
  const undo = async () => void (isAgain || (await dropNoted([path], io.run)))
  try {
    await reserve(own, io.run)
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
  for (const path of recordsOf(plugin.type, at.network)) if (!keep.has(path)) await attempt(dropNoted([path], io.run))
  if (valid.length === 0) await attempt(plugin.unshare?.(conf, io.run))
  throwAll(failures, call)
}

/** What ADD makes once its claims are decided, given which of them stand: what links need gets its input first. Pure. */
export function making({ shared, own }: Pick<Wiring, 'shared' | 'own'>, stands: (claim: Claim) => boolean): { readonly links: Plan; readonly rest: Plan } {
  const links = shared.filter(({ kind }) => kind === 'link')
  return { links: { put: links, drop: [] }, rest: { put: [...shared.filter((one) => !links.includes(one)), ...following(own, stands).filter((one) => !isClaim(one))], drop: [] } }
}
