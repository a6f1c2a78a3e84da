import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'

/**
 * Does the last work once: it installs the plugins and their configuration, tells systemd, and removes flannel's rules.
 * Then it puts back what somebody removes of the plugins and of their network.
 */
export class InstallationPart implements Part {
  readonly name = 'installation'
  readonly trouble = 'Cannot finish what the node needs'
  readonly quietMs = 0
  readonly queue: Queue
  readonly #now: NodeState
  readonly #isTime: () => boolean
  readonly #work: () => Promise<void>
  readonly #keep: () => Promise<void>

  /**
   * `isTime` says whether all other parts have done their work. `work` is the installation, and `keep` puts back what is
   * missing of it.
   */
  constructor(
    now: NodeState,
    queue: Queue,
    isTime: () => boolean,
    { work, keep }: { work(): Promise<void>; keep(): Promise<void> },
  ) {
    this.#now = now
    this.queue = queue
    this.#isTime = isTime
    this.#work = work
    this.#keep = keep
  }

  async step(): Promise<Outcome> {
    if (this.#now.isSynced) {
      await this.#keep()
      return DONE
    }
    if (!this.#isTime()) return WAITING
    await this.#work()
    this.#now.isSynced = true
    return DONE
  }
}
