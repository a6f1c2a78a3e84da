import { existsSync } from 'node:fs'
import type { Call } from '../cni.ts'
import { CniError, CODE, ValueError } from '../errors.ts'
import { log } from '../log.ts'
import type { Attachment, ChainedPlugin, InterfacePlugin, NetConf, NodeFacts, Run, Wiring, Within } from '../plugin.ts'
import { record, recordPath, recordsOf } from '../records.ts'
import type { Result } from '../result.ts'
import { read, readLoose } from '../shape.ts'
import type { Owner, Resource } from '../state.ts'
import { dropNoted } from './noted.ts'

// The types of chained plugins whose records DEL and GC look for: those of an attachment may also have been made by the plugin itself, when it stood in the list.
const PARTS = ['portmap', 'firewall', 'bandwidth', 'tuning']

/** A chained plugin that works within another's calls, and its configuration. */
interface Part {
  readonly plugin: ChainedPlugin<NetConf>
  readonly conf: NetConf
}

/** An interface plugin together with the chained plugins that its configuration wants in its own calls: wired, checked and judged as one. The same plugin when there are none. Throws ValueError naming the key, CniError 999 when this executable lacks one. */
export async function together<C extends NetConf>(plugin: InterfacePlugin<C>, conf: C, call: Call): Promise<InterfacePlugin<C>> {
  const parts = await Promise.all((plugin.within?.(conf) ?? []).map((one) => opened(one, call)))
  if (parts.length === 0) return plugin
  const { links } = plugin
  return {
    ...plugin,
    wire: (conf, at, given, node) => joined(plugin.wire(conf, at, given, node), parts, at, node),
    ...(links && { links: (conf, at, node) => nodeLinks(links(conf, at, node), plugin.wire(conf, at, {}, node), parts, at, node) }),
    async status(conf, run) {
      await plugin.status?.(conf, run)
      for (const part of parts) await part.plugin.status?.(part.conf, run)
    },
    async unshare(conf, run) {
      for (const part of parts) await part.plugin.unshare?.(part.conf, run)
      await plugin.unshare?.(conf, run)
    },
  }
}

/** Notes what of the parts is made with the first links (bandwidth's ifb), before any of it is made. What an earlier call noted that was killed is removed first. */
export async function noteFirst(links: readonly Resource[], at: Attachment, run: Run): Promise<void> {
  await dropParts({ at, io: { run } })
  const own = links.filter((one) => one.kind === 'link' && one.type === 'ifb')
  if (own.length > 0) record(recordPath('bandwidth', at), at, own)
}

/** Notes what the parts of a wiring make, before it is made. */
export function noteParts({ noted = [] }: Wiring, at: Attachment): void {
  for (const { type, own } of noted) if (own.length > 0) record(recordPath(type, at), at, own)
}

/** Removes what the parts noted for an attachment, and with it these links: the paths of what was noted. Empty when nothing was; the links are left then. */
export async function dropParts({ at, io }: { readonly at: Attachment; readonly io: { readonly run: Run } }, own: readonly Resource[] = []): Promise<string[]> {
  const paths = PARTS.map((type) => recordPath(type, at)).filter((path) => existsSync(path))
  return paths.length > 0 ? dropNoted(paths, io.run, false, own) : []
}

/** Removes what reference plugins made for an attachment in place of the parts that a configuration names, but for those that noted what they made. */
export async function dropForeignParts<C extends NetConf>(plugin: InterfacePlugin<C>, conf: Partial<C>, { at, io, raw }: Call, noted: readonly string[]): Promise<void> {
  for (const { type, conf: settings } of plugin.within?.(conf) ?? []) {
    const part = noted.includes(recordPath(type, at)) ? undefined : await io.plugin(type)
    if (part?.role === 'chained') await part.unwireForeign?.(readLoose(part.conf, { ...raw, ...settings }), at, io.run)
  }
}

/** Removes what parts made for attachments of a network that are none of these. */
export async function dropOthers(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  for (const type of PARTS) {
    const keep = new Set(valid.map((owner) => recordPath(type, owner)))
    for (const path of recordsOf(type, at.network)) if (!keep.has(path)) await dropNoted([path], io.run)
  }
}

async function opened({ type, key, conf }: Within, call: Call): Promise<Part> {
  const plugin = await call.io.plugin(type)
  if (plugin?.role !== 'chained') throw new CniError(CODE.internal, `Cannot find the plugin ${type} in this executable`)
  try {
    const { cniVersion, name, strict } = call.raw
    const { value, notes } = read(plugin.conf, { cniVersion, name, type, ...(strict === undefined ? {} : { strict }), ...conf })
    for (const one of [...notes, ...(plugin.notes?.(value) ?? [])]) log(`plumb: ${key}: ${one}`, { network: call.at.network })
    return { plugin, conf: value }
  } catch (cause) {
    throw new ValueError(`${(cause as Error).message} (in ${key})`, { cause })
  }
}

function joined(base: Wiring, parts: readonly Part[], at: Attachment, node: NodeFacts): Wiring {
  const shared: Resource[] = [...base.shared]
  const noted: { type: string; own: readonly Resource[] }[] = []
  let { result } = base
  for (const { plugin, conf } of parts) {
    const wiring = plugin.wire(conf, at, result, node)
    shared.push(...wiring.shared)
    noted.push({ type: plugin.type, own: wiring.own })
    result = wiring.result
  }
  const { settle } = base
  const after = (first: Result) => parts.reduce((given, { plugin, conf }) => plugin.wire(conf, at, given, node).result, first)
  return { ...base, shared, result, noted, ...(settle && { settle: (seen) => ((settled) => ({ ...settled, result: after(settled.result) }))(settle(seen)) }) }
}

// What stands on the node and depends on no address is made with the first links, in one process.
function nodeLinks(links: readonly Resource[], base: Wiring, parts: readonly Part[], at: Attachment, node: NodeFacts): Resource[] {
  const { shared, noted = [] } = joined(base, parts, at, node)
  const own = noted.flatMap((one) => one.own)
  const marks = (name: string) => shared.flatMap((one) => (one.kind === 'link' && one.type === 'port' && one.name === name && one.port ? [one.port] : []))
  // Where bridged frames meet the rules a pod reaches its own host ports only so: said now, it is not said in a process of its own.
  const turns = parts.some(({ plugin }) => plugin.type === 'portmap') && node.bridgeNf
  const turning = links.map((one): Resource => (one.kind === 'link' && one.type === 'veth' && one.port ? { ...one, port: Object.assign({}, one.port, turns && { hairpin: true }, ...marks(one.name)) } : one))
  return [...turning, ...own.filter((one) => one.ns === 'host' && (one.kind === 'setting' || (one.kind === 'link' && one.type !== 'port')))]
}
