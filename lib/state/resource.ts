import type { IfName } from '../text/values.ts'
import { handler, type Resource } from './kinds/index.ts'

/** A kernel object that plumb makes, as plain data. */
export type { Resource }

/** The kind of a resource. Each kind has one handler in lib/state/kinds. */
export type Kind = Resource['kind']

/** The resources to make (`put`) and to remove (`drop`), each list in order. */
export interface Plan {
  readonly put: readonly Resource[]
  readonly drop: readonly Resource[]
}

/**
 * A port of a bridge with all that the kernel forgets when the bridge goes: its settings, its VLANs, and the fixed
 * addresses of the forwarding table.
 */
export interface BridgePort {
  readonly name: IfName
  readonly port: NonNullable<Extract<Resource, { kind: 'link' }>['port']>
  readonly rows: readonly Extract<Resource, { kind: 'vlan' | 'fdb' }>[]
}

/** The name of a resource in messages, without words of a tool. */
export function title(resource: Resource): string {
  return handler(resource.kind).title(resource)
}
