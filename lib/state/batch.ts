import type { Netns } from '../text/values.ts'
import type { Handler, Line } from './handler.ts'
import type { Resource } from './resource.ts'

/** One process to start, or one series of file writes. It has a namespace, a tool, and lines with their resources. */
export interface Batch {
  readonly ns: Netns
  readonly tool: Handler<Resource>['tool']
  readonly steps: readonly Step[]
}

/** A line and its resource. */
export interface Step {
  readonly resource: Resource
  readonly line: Line
}
