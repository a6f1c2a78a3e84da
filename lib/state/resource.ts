import { handler, type Resource } from './kinds/index.ts'

/** A kernel object that plumb makes, as plain data. */
export type { Resource }

/** The kinds of resources; one handler each in lib/state/kinds. */
export type Kind = Resource['kind']

/** What is to be made and what is to be removed, each in order. */
export interface Plan {
  readonly put: readonly Resource[]
  readonly drop: readonly Resource[]
}

/** What a resource is called in messages, without the words of any tool. */
export function title(resource: Resource): string {
  return handler(resource.kind).title(resource)
}
