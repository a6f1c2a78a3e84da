import type { IfName } from '../text/values.ts'
import type { Line } from './handler.ts'
import type { Fdb } from './kinds/fdb.ts'
import { handler } from './kinds/index.ts'
import type { Link } from './kinds/link.ts'
import type { Vlan } from './kinds/vlan.ts'
import type { BridgePort, Resource } from './resource.ts'

/** The ports among the resources of an attachment. Pure. */
export function portsOf(resources: readonly Resource[]): BridgePort[] {
  const links = new Map<IfName, NonNullable<Link['port']>>()
  for (const one of resources) {
    if (one.kind !== 'link' || one.ns !== 'host' || !one.port) continue
    links.set(one.name, { ...links.get(one.name), ...one.port })
  }
  const isOf = (name: IfName) => (one: Resource) => (one.kind === 'vlan' || one.kind === 'fdb') && one.dev === name
  return [...links].map(([name, port]) => ({ name, port, rows: resources.filter(isOf(name)) as (Vlan | Fdb)[] }))
}

/** Ports with what further resources say of them: settings that a chained plugin wants. Pure. */
export function withSettings(ports: readonly BridgePort[], resources: readonly Resource[]): BridgePort[] {
  const more = portsOf(resources)
  return ports.map((one) => ({ ...one, port: { ...one.port, ...more.find(({ name }) => name === one.name)?.port } }))
}

/** A line for a tool, and the port that it is about. */
export interface PortLine extends Line {
  readonly name: IfName
}
// The pod has gone meanwhile.
const GONE = /Cannot find (bridge )?device|No such device/

/**
 * The lines that join ports to their bridge again, in three steps: for `ip`, for `bridge`, and for `ip` again. A port is
 * down until it has all of its settings. So no frame passes that an isolated port, a VLAN or a lock would stop. Its pod
 * loses the carrier meanwhile, and forgets its neighbours: the bridge may have another MAC address now. Pure.
 */
export function joining(ports: readonly BridgePort[]): readonly [PortLine[], PortLine[], PortLine[]] {
  const lines = (work: (one: BridgePort) => readonly (string | Line)[]) =>
    ports.flatMap((one) =>
      work(one).map((line) => ({
        name: one.name,
        unless: GONE,
        ...(typeof line === 'string' ? { text: line } : line),
      })),
    )
  return [
    lines(({ name, port }) => [
      `link set dev ${name} down`,
      `link set dev ${name} master ${port.master}`,
      ...settings(name, port),
    ]),
    lines(({ rows }) => rows.flatMap((one) => linesOf(one))),
    lines(({ name }) => [`link set dev ${name} up`]),
  ]
}

function settings(name: IfName, port: NonNullable<Link['port']>): string[] {
  const all = (['hairpin', 'isolated', 'locked'] as const).filter((one) => port[one]).map((one) => `${one} on`)
  return all.length === 0 ? [] : [`link set dev ${name} type bridge_slave ${all.join(' ')}`]
}

function linesOf(one: Vlan | Fdb): readonly Line[] {
  return one.kind === 'vlan' ? handler(one.kind).put(one) : handler(one.kind).put(one)
}
