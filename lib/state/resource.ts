import type { IfName } from '../text/values.ts'
import type { Line } from './handler.ts'
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

/** A wanted resource. `have` is what stands in its place; without it there is nothing, or it does not matter. */
export interface Change {
  readonly want: Resource
  readonly have?: Resource
}

/** The lines that make a wanted resource, or correct the one in its place. */
export function linesOf({ want, have }: Change): readonly Line[] {
  const { put, change } = handler(want.kind)
  return have && change ? change(want, have) : put(want)
}

/** The name of a resource in messages, without words of a tool. */
export function title(resource: Resource): string {
  return handler(resource.kind).title(resource)
}
