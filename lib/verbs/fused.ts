import type { Call } from '../cni/call.ts'
import { FUSED } from '../cni/fused-plugins.ts'
import type { Attachment, ChainedPlugin, InterfacePlugin, NetConf, NodeFacts, Wiring, Within } from '../cni/plugin.ts'
import type { Result, Settled } from '../cni/result.ts'
import { beginRemoval, entries, note, partName, readEntry, readPart } from '../journal/journal.ts'
import { MASQUERADE } from '../nft/masquerade.ts'
import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import { portsOf } from '../state/bridge-ports.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE, ValueError } from '../text/errors.ts'
import type { Owner, PartName } from '../text/owner.ts'
import { read, readLoose } from '../text/shape.ts'
import { ROUTED } from '../wiring/routed.ts'
import { dropNoted, outdated, reachable } from './journal-parts.ts'
import { taken } from './link.ts'

/** A chained plugin that works within the calls of an interface plugin, and its configuration. */
interface Part {
  readonly plugin: ChainedPlugin<NetConf>
  readonly conf: NetConf
}

/**
 * Combines an interface plugin with the chained plugins that its configuration asks for. The combined plugin makes,
 * checks and judges all their resources together. Returns the same plugin when the configuration asks for none. Throws
 * ValueError with the name of the key. Throws CniError 999 when this executable lacks a chained plugin.
 */
export async function together<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  conf: C,
  call: Call,
): Promise<InterfacePlugin<C>> {
  const parts = await Promise.all((plugin.within?.(conf) ?? []).map((one) => opened(one, call)))
  if (parts.length === 0) return plugin
  const { links } = plugin
  return {
    ...plugin,
    tools: (conf) => [
      ...(plugin.tools?.(conf) ?? []),
      ...parts.flatMap((part) => part.plugin.tools?.(part.conf) ?? []),
    ],
    wire: (conf, at, given, node) => joined(plugin.wire(conf, at, given, node), parts, at, node),
    ...(links && {
      links: (conf, at, node) => nodeLinks(links(conf, at, node), plugin.wire(conf, at, {}, node), parts, at, node),
    }),
    async checkForeign(conf, at, given, run) {
      const missing = [...((await plugin.checkForeign?.(conf, at, given, run)) ?? [])]
      for (const part of parts) missing.push(...((await part.plugin.checkForeign?.(part.conf, at, given, run)) ?? []))
      return missing
    },
    async status(conf, run) {
      await plugin.status?.(conf, run)
      for (const part of parts) await part.plugin.status?.(part.conf, run, conf.type)
    },
    async unshare(conf, run) {
      for (const part of parts) await part.plugin.unshare?.(part.conf, run)
      await plugin.unshare?.(conf, run)
    },
  }
}

async function opened({ type, key, conf }: Within, call: Call): Promise<Part> {
  const plugin = await call.io.plugin(type)
  if (plugin?.role !== 'chained') throw new CniError(CODE.internal, `Cannot find the plugin ${type} in this executable`)
  try {
    const { cniVersion, name, strict } = call.raw
    if (call.command === 'ADD') plugin.judge?.(call.text, key)
    const { value, notes } = read(plugin.conf, {
      cniVersion,
      name,
      type,
      ...(strict === undefined ? {} : { strict }),
      ...conf,
    })
    for (const one of [...notes, ...(plugin.notes?.(value) ?? [])])
      log(`plumb: ${key}: ${one}`, { network: call.at.network })
    return { plugin, conf: value }
  } catch (cause) {
    throw new ValueError(`${(cause as Error).message} (in ${key})`, { cause })
  }
}

function joined(base: Wiring, parts: readonly Part[], at: Attachment, node: NodeFacts): Wiring {
  const shared: Resource[] = [...base.shared]
  const noted: { type: string; own: readonly Resource[] }[] = [...(base.noted ?? [])]
  let { result } = base
  for (const { plugin, conf } of parts) {
    const wiring = plugin.wire(conf, at, result, node)
    shared.push(...wiring.shared)
    noted.push({ type: plugin.type, own: wiring.own })
    result = wiring.result
  }
  const { settle } = base
  const after = (first: Result) =>
    parts.reduce((given, { plugin, conf }) => plugin.wire(conf, at, given, node).result, first)
  const settled = ({ result, ...rest }: Settled): Settled => ({ ...rest, result: after(result) })
  return { ...base, shared, result, noted, ...(settle && { settle: (now) => settled(settle(now)) }) }
}

// The first links, with the parts' links and settings on the node. They need no address, so one process makes them all.
function nodeLinks(
  links: readonly Resource[],
  base: Wiring,
  parts: readonly Part[],
  at: Attachment,
  node: NodeFacts,
): Resource[] {
  const { shared, noted = [] } = joined(base, parts, at, node)
  const own = noted.flatMap((one) => one.own)
  const marks = (name: string) =>
    shared.flatMap((one) =>
      one.kind === 'link' && one.type === 'port' && one.name === name && one.port ? [one.port] : [],
    )
  // When bridged frames pass the firewall, a pod reaches its own host ports only through hairpin mode. Setting it here
  // saves a process.
  const turns = parts.some(({ plugin }) => plugin.type === 'portmap') && node.bridgeNf
  const turning = links.map((one): Resource => {
    if (one.kind !== 'link' || one.type !== 'veth' || !one.port) return one
    return { ...one, port: Object.assign({}, one.port, turns && { hairpin: true }, ...marks(one.name)) }
  })
  const isEarly = (one: Resource) => one.kind === 'setting' || (one.kind === 'link' && one.type !== 'port')
  return [...turning, ...own.filter((one) => one.ns === 'host' && isEarly(one))]
}

// The parts that DEL and GC of an interface plugin remove: its own masquerading, its guard of the gateway, and the parts
// of chained plugins. A chained plugin worked within the calls of the interface plugin, or in the list.
const PARTS = [MASQUERADE, ROUTED, ...FUSED.map(({ type }) => type)]

/**
 * Writes to the journal the parts' resources that are made with the first links (bandwidth's ifb), before ADD makes
 * them. First it removes the noted resources of an earlier call that was killed. Throws CniError 4 when the attachment
 * exists, because the noted resources are in use then.
 */
export async function noteFirst<C extends NetConf>(
  { unwire }: InterfacePlugin<C>,
  links: readonly Resource[],
  { at, io }: Call,
): Promise<void> {
  const parts = partsOf(at)
  const isThere = (one: Resource) => one.kind === 'link' && io.run.link?.(one.name, one.ns) !== false
  if (parts.length > 0 && unwire(at).some(isThere)) throw taken(at)
  if (parts.length > 0) await dropNoted(parts, io.run)
  const own = links.filter((one) => one.kind === 'link' && one.type === 'ifb')
  if (own.length > 0) note(at, { bandwidth: own })
}

/**
 * Writes to the journal the addresses of an attachment and the resources of its parts, before ADD makes them. An
 * earlier attachment of the same owner may have lost its link without a DEL. Its outdated resources are removed first.
 */
export async function noteParts(wiring: Wiring, at: Attachment, run: Run): Promise<void> {
  const { shared, own, noted = [], result } = wiring
  const parts = noted.filter(({ own }) => own.length > 0)
  for (const { type, own } of parts) {
    const before = readPart(partName(type, at))
    if (before) await apply({ put: [], drop: outdated(reachable(before, run), own) }, run)
  }
  const ports = portsOf([...own, ...shared, ...parts.flatMap(({ own }) => own)])
  note(at, Object.fromEntries(parts.map(({ type, own }) => [type, own])), result.ips, () => ports)
}

/**
 * Removes the noted resources of an attachment's parts, together with the resources `own` of its link. Returns the
 * names of the parts. Returns an empty list when there are no parts. Then `own` is not removed.
 */
export async function dropParts({ at, io }: Call, own: readonly Resource[] = []): Promise<PartName[]> {
  const parts = partsOf(at)
  return parts.length > 0 ? dropNoted(parts, io.run, false, own) : []
}

/**
 * Removes the objects that reference plugins made for an attachment, for each chained plugin that the configuration
 * asks for. Skips the parts in `noted`, because plumb made their objects.
 */
export async function dropForeignParts<C extends NetConf>(
  plugin: InterfacePlugin<C>,
  conf: Partial<C>,
  { at, io, raw }: Call,
  noted: readonly PartName[],
): Promise<void> {
  for (const { type, conf: settings } of plugin.within?.(conf) ?? []) {
    const part = noted.includes(partName(type, at)) ? undefined : await io.plugin(type)
    if (part?.role === 'chained') await part.unwireForeign?.(readLoose(part.conf, { ...raw, ...settings }), at, io.run)
  }
}

/** Removes the resources of parts for all attachments of the network except the valid ones (GC). */
export async function dropOthers(valid: readonly Owner[], { at, io }: Call): Promise<void> {
  const owners = entries(at.network, valid).flatMap(({ owner }) => (partsOf(owner).length > 0 ? [owner] : []))
  // A killed GC leaves links without their parts. The next ADD finds the unfinished entry and removes them first.
  for (const owner of owners) beginRemoval(owner)
  for (const owner of owners) for (const part of partsOf(owner)) await dropNoted([part], io.run)
}

function partsOf(owner: Owner): PartName[] {
  const entry = readEntry(owner)
  return PARTS.flatMap((type) => (entry?.parts[type] ? [partName(type, owner)] : []))
}
