import type { Ip } from '../../lib/text/ip.ts'
import type { Failure } from '../scheduler/failures.ts'
import { type Lives, livesBy, review, reviewEnded } from './flows.ts'
import type { Cluster, PolicyState } from './state.ts'
import { addressesOfNode } from './view.ts'

/** How long a step waits until the connections that are no longer allowed have ended. Milliseconds. */
const ENDING_MS = 250
/** The same before it changes the rules, when no ADD or DEL waits for it. */
const FIRST_MS = 1000
/** When connections are looked at again after a failure. Milliseconds. */
const AGAIN_MS = 2000
/** How often ended connections are looked at that a change may allow again. Milliseconds. */
const REVIVE_MS = 500

/** What the connections ask and tell the part that programs policy. */
interface Listener {
  /** What does not work. Empty when all does. */
  report(failures: readonly Failure[]): void
  /** Call `end` again after so many milliseconds. */
  again(afterMs: number): void
  /** Some connections have ended. Throws Error when their packets may go on all the same. */
  ended(): Promise<void>
}

/**
 * Ends the connections that policy no longer allows, and revives those that it allows again. After a start, all
 * connections of local pods are looked at.
 */
export class Connections {
  readonly #state: PolicyState
  readonly #cluster: Cluster
  readonly #listener: Listener
  /** The addresses whose connections are not looked at yet. */
  #tightened: ReadonlySet<Ip> = new Set()
  /** The same, of a change that is not in the kernel yet. */
  #coming: ReadonlySet<Ip> = new Set()
  /** Some connections may be ended in the kernel: an earlier agent may have ended them. */
  #hasEnded = true
  /** Something has changed since they were looked at. */
  #mayRevive = false
  #revivedAt = Number.NEGATIVE_INFINITY
  #ending: Promise<void> | undefined

  constructor(state: PolicyState, cluster: Cluster, listener: Listener) {
    this.#state = state
    this.#cluster = cluster
    this.#listener = listener
  }

  /** The objects have changed. A look that goes on may be about to end some connections by what was known before. */
  changed(): void {
    this.#mayRevive ||= this.#hasEnded || this.#ending !== undefined
  }

  /**
   * Ends the connections of these addresses that may not go on, before the rules change. So none of their packets passes
   * after that transaction. Gives whether some may take the fast path: then it has to be taken away in that transaction.
   * Where the kernel tracks many connections, it looks at some alone when an ADD or a DEL waits for the step. Follow with
   * `end`, which finds the others, and what began meanwhile. Never throws.
   */
  async endFirst(tightened: ReadonlySet<Ip>, isAwaited: boolean): Promise<boolean> {
    this.#coming = this.#coming.union(tightened)
    if (this.#coming.size === 0) return false
    try {
      const ended = await review(this.#coming, this.#lives(), isAwaited ? 0 : FIRST_MS)
      this.#hasEnded ||= ended > 0
      return ended > 0
    } catch {
      // `end` tries again, and tells.
      return false
    }
  }

  /**
   * Looks at the connections of these addresses and of those of `endFirst`, and at those that may begin again. The kernel
   * may track hundreds of thousands: then the call returns after a while, and the work goes on beside the steps.
   */
  async end(tightened: ReadonlySet<Ip>): Promise<void> {
    this.#tightened = this.#tightened.union(this.#coming).union(tightened)
    this.#coming = new Set()
    if (this.#tightened.size === 0 && !this.#mayRevive) return
    this.#ending ??= this.#reviewAll().finally(() => {
      this.#ending = undefined
    })
    await Promise.race([this.#ending, new Promise((resolve) => setTimeout(resolve, ENDING_MS).unref())])
  }

  async #reviewAll(): Promise<void> {
    while (this.#tightened.size > 0) {
      const addresses = this.#tightened
      this.#tightened = new Set()
      try {
        if ((await review(addresses, this.#lives())) > 0) {
          this.#hasEnded = true
          await this.#listener.ended()
        }
        this.#listener.report([])
      } catch (cause) {
        this.#tightened = this.#tightened.union(addresses)
        this.#lookAgain(cause)
        return
      }
    }
    if (!this.#mayRevive) return
    // The kernel walks its whole table for each look.
    const waitMs = this.#revivedAt + REVIVE_MS - performance.now()
    if (waitMs > 0) {
      this.#listener.again(waitMs)
      return
    }
    this.#mayRevive = false
    this.#revivedAt = performance.now()
    try {
      this.#hasEnded = (await reviewEnded(this.#lives())) > 0
      this.#listener.report([])
    } catch (cause) {
      this.#mayRevive = true
      this.#lookAgain(cause)
    }
  }

  // What connections are held against: the objects of now.
  #lives(): Lives {
    return livesBy(this.#state, this.#cluster, addressesOfNode())
  }

  #lookAgain(cause: unknown): void {
    this.#listener.report([{ scope: 'part', text: (cause as Error).message }])
    this.#listener.again(AGAIN_MS)
  }
}
