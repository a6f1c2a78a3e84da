import type { IfName } from '../text/values.ts'
import type { Fdb } from './kinds/fdb.ts'
import type { Link } from './kinds/link.ts'
import type { Vlan } from './kinds/vlan.ts'
import type { BridgePort, Change, Resource } from './resource.ts'

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

/**
 * Joins ports to their bridge again, in three steps: for `ip`, for `bridge`, and for `ip` again. A port is down until it
 * has all of its settings. So no frame passes that an isolated port, a VLAN or a lock would stop. Its pod loses the
 * carrier meanwhile, and forgets its neighbours: the bridge may have another MAC address now. Pure.
 */
export function joining(ports: readonly BridgePort[]): readonly [Change[], Change[], Change[]] {
  const free = (name: IfName, up: boolean): Link => ({ kind: 'link', ns: 'host', name, type: 'veth', up })
  const joined = ({ name, port }: BridgePort, up: boolean): Link => ({ ...free(name, up), port })
  return [
    ports.map((one) => ({ want: joined(one, false), have: free(one.name, true) })),
    ports.flatMap(({ rows }) => rows.map((want) => ({ want }))),
    ports.map((one) => ({ want: joined(one, true), have: joined(one, false) })),
  ]
}
