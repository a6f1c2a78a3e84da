import { restore } from '../../lib/nft/elements.ts'
import { run } from '../kernel/run.ts'
import { DONE, type Outcome, type Part } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { Repairs } from './repairs.ts'

/** Restores the plugins' nft table, with the elements of all pods, after another program removed its rules. */
export class PluginRulesPart implements Part {
  readonly name = 'rules of plugins'
  readonly trouble = 'Cannot load the nft rules of plugins'
  // The removal of a table comes as several events in a row.
  readonly quietMs = 100
  readonly queue: Queue
  readonly #repairs: Repairs
  #isThorough = false

  constructor(queue: Queue, repairs: Repairs) {
    this.queue = queue
    this.#repairs = repairs
  }

  /** The next step checks every element of every pod. */
  invalidate(): void {
    this.#isThorough = true
  }

  async step(): Promise<Outcome> {
    const isThorough = this.#isThorough
    this.#isThorough = false
    try {
      if (await restore(run, isThorough)) this.#repairs.ofPart(this, 'nft', ['nft table plumb'])
    } catch (cause) {
      this.#isThorough ||= isThorough
      throw cause
    }
    return DONE
  }
}
