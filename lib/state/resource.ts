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

/** The name of a resource in messages, without words of a tool. */
export function title(resource: Resource): string {
  return handler(resource.kind).title(resource)
}
