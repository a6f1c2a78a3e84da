import type { Failure } from './failures.ts'
import type { Queue } from './queue.ts'

/** The result of one step of a part. */
export interface Outcome {
  /** The step lacks an input. Another part provides it and then triggers this part. */
  readonly isWaiting?: true
  /** The failures of the step. The part runs again soon. */
  readonly failures?: readonly Failure[]
  /** Work is left although there is no failure to report. The part runs again soon, too. */
  readonly isIncomplete?: boolean
}

/**
 * One thing that the agent keeps in its wanted state, such as the uplink, the lease or the peers. A step uses the whole
 * known state (level-triggered). A lost trigger costs time and never causes a wrong state.
 */
export interface Part {
  /** The name under which the part's failures and triggers are known. */
  readonly name: string
  /** The failed task in messages when a step throws, such as `Cannot choose the uplink`. */
  readonly trouble: string
  /** The triggers of this part. No other part shares them. */
  readonly queue: Queue
  /** How long changes are gathered before a step, in milliseconds. It is 0 for changes that do not come in bursts. */
  readonly quietMs: number
  /** Makes the next step check everything again. Absent for parts that always do. */
  invalidate?(): void
  /** Makes the state right. Throws errors that concern the whole node. */
  step(why: readonly string[]): Promise<Outcome>
}

/** The result of a step without failures. */
export const DONE: Outcome = {}
/** The result of a step that could not begin. */
export const WAITING: Outcome = { isWaiting: true }
