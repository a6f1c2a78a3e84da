import type { Call } from '../cni/call.ts'
import type { Attachment, ChainedPlugin, InterfacePlugin, NetConf, NodeFacts, Wiring, Within } from '../cni/plugin.ts'
import type { Result, Settled } from '../cni/result.ts'
import { log } from '../os/log.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE, ValueError } from '../text/errors.ts'
import { read } from '../text/shape.ts'

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
  const turning = links.map(
    (one): Resource =>
      one.kind === 'link' && one.type === 'veth' && one.port
        ? { ...one, port: Object.assign({}, one.port, turns && { hairpin: true }, ...marks(one.name)) }
        : one,
  )
  return [
    ...turning,
    ...own.filter(
      (one) => one.ns === 'host' && (one.kind === 'setting' || (one.kind === 'link' && one.type !== 'port')),
    ),
  ]
}
