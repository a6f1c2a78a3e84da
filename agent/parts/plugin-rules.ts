import { restore } from '../../lib/nft/elements.ts'
import { run } from '../kernel/run.ts'
import { DONE, type Outcome } from '../scheduler/part.ts'
import { BasePart } from './base.ts'

/** Restores the plugins' nft table, with the elements of all pods, after another program removed its rules. */
export class PluginRulesPart extends BasePart<object> {
  readonly name = 'rules of plugins'
  readonly trouble = 'Cannot load the nft rules of plugins'
  // The removal of a table comes as several events in a row.
  readonly quietMs = 100
  #isThorough = false

  /** The next step checks every element of every pod. */
  invalidate(): void {
    this.#isThorough = true
  }

  async step(): Promise<Outcome> {
    const isThorough = this.#isThorough
    this.#isThorough = false
    try {
      if (await restore(run, isThorough)) this.repairs.ofPart(this, 'nft', ['nft table plumb'])
    } catch (cause) {
      this.#isThorough ||= isThorough
      throw cause
    }
    return DONE
  }
}
