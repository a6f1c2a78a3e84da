import type { Outcome, Part } from '../scheduler/part.ts'
import { makeQueue, type Queue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'
import type { Repairs } from './repairs.ts'

/** What the parts of one run share. */
export interface Shared {
  readonly now: NodeState
  readonly repairs: Repairs
  /** Ends with the run. */
  readonly signal: AbortSignal
}

/** What each part has. `Given` is the type of what it needs of the agent. */
export abstract class BasePart<Given> implements Part {
  abstract readonly name: string
  abstract readonly trouble: string
  abstract readonly quietMs: number
  readonly queue: Queue
  protected readonly given: Given
  protected readonly now: NodeState
  protected readonly repairs: Repairs

  constructor(given: Given, { now, repairs, signal }: Shared) {
    this.given = given
    this.now = now
    this.repairs = repairs
    this.queue = makeQueue(signal)
  }

  abstract step(why: readonly string[]): Promise<Outcome>
}
