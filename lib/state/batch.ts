import type { Netns } from '../text/values.ts'
import type { Handler, Line } from './handler.ts'
import type { Resource } from './resource.ts'

/** One process to start, or one run of file writes: a namespace, a tool, and for each line the resource it is for. */
export interface Batch {
  readonly ns: Netns
  readonly tool: Handler<Resource>['tool']
  readonly steps: readonly Step[]
  /** It goes on beside the ones before it, but for the node's links. */
  readonly isEarly?: true
}

/** A line, and the resource that it is for. */
export interface Step {
  readonly resource: Resource
  readonly line: Line
}
