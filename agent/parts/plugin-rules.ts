import { restore } from '../../lib/nft/elements.ts'
import { run } from '../kernel/run.ts'
import { DONE, type Outcome, type Part } from '../scheduler/part.ts'
import type { Wakes } from '../scheduler/wakes.ts'
import type { Repairs } from './repairs.ts'

/** Puts the plugins' nft table back with the elements of all pods, when somebody took its rules away. */
export class PluginRulesPart implements Part {
  readonly name = 'rules of plugins'
  readonly trouble = 'Cannot load the nft rules of plugins'
  // What takes a table away takes several things, one after the other.
  readonly quietMs = 100
  readonly wakes: Wakes
  readonly #repairs: Repairs
  #isThorough = false

  constructor(wakes: Wakes, repairs: Repairs) {
    this.wakes = wakes
    this.#repairs = repairs
  }

  /** The next step looks at every element of every pod. */
  doubt(): void {
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
