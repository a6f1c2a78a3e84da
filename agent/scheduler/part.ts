import type { Failure } from './failures.ts'
import type { Wakes } from './wakes.ts'

/** What came of one step of a part. */
export interface Outcome {
  /** What it needs first is not known yet: another part wakes it. */
  readonly isWaiting?: true
  /** What it could not do. It is stepped again soon. */
  readonly failures?: readonly Failure[]
  /** Something is left to do though nothing is to be told of: it is stepped again soon, too. */
  readonly isIncomplete?: boolean
}

/** One thing that the agent keeps as it should be: the uplink, the lease, the peers. A step begins with all that is known (level-triggered), so a wake that was lost costs time and never a wrong state. */
export interface Part {
  /** By which its failures are known, and its wakes. */
  readonly name: string
  /** What it cannot do when a step throws: `Cannot choose the uplink`. */
  readonly trouble: string
  /** What wakes it; each part has its own. */
  readonly wakes: Wakes
  /** So long changes are gathered before they are acted on, in milliseconds: 0 where they do not come in bursts. */
  readonly quietMs: number
  /** The next step looks at everything anew, whatever it knows. Absent where every step does. */
  doubt?(): void
  /** Makes it so. Throws what concerns the whole node. */
  step(why: readonly string[]): Promise<Outcome>
}

/** A step that had nothing to complain of. */
export const DONE: Outcome = {}
/** A step that could not begin. */
export const WAITING: Outcome = { isWaiting: true }
