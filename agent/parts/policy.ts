import { isThere } from '../../lib/os/nftables.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { type Compiled, compile, POLICY_KINDS } from '../policy/compile.ts'
import { load, step, TABLE } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Wakes } from '../scheduler/wakes.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

const TOOL = ['nft', '-f', '-']
/** Refused objects that the status names at once. */
const NAMED = 20

/** Keeps NetworkPolicy in the kernel: the sets, chains and elements of the pods of this node. The table stays when the agent ends. */
export class PolicyPart implements Part {
  readonly name = 'policy'
  readonly trouble = 'Cannot program NetworkPolicy'
  readonly quietMs: number
  readonly wakes: Wakes
  readonly #context: Context
  readonly #objects: ObjectSource
  readonly #repairs: Repairs
  /** What the last transaction left in the kernel. Undefined when the kernel may have anything else. */
  #now: Compiled | undefined
  #isLoaded = false

  constructor(context: Context, objects: ObjectSource, wakes: Wakes, repairs: Repairs) {
    this.#context = context
    this.#objects = objects
    this.wakes = wakes
    this.#repairs = repairs
    this.quietMs = context.quietMs
    objects.changes(POLICY_KINDS, () => wakes.poke('objects'))
  }

  doubt(): void {
    this.#now = undefined
  }

  async step(): Promise<Outcome> {
    // The table of an earlier run stays until everything is known.
    if (!this.#objects.isComplete(POLICY_KINDS)) return WAITING
    const wanted = compile(this.#objects.objects, this.#context.node)
    // A table that is gone is somebody else's work, or this part's own: a load replaces the table.
    if (this.#now && !isThere('inet', TABLE)) this.#now = undefined
    if (this.#now) await this.#run(step(this.#now, wanted).join('\n'))
    else await this.#reload(wanted)
    this.#now = wanted
    const failures = this.#objects
      .refused(POLICY_KINDS)
      .slice(0, NAMED)
      .map((text): Failure => ({ scope: 'part', text: `${text}; the other objects are enforced` }))
    this.#context.failures.report('objects of policy', failures)
    return DONE
  }

  // One transaction replaces the table, so that no packet meets half of it. It is a repair when the kernel had something else before.
  async #reload(wanted: Compiled): Promise<void> {
    const before = this.#isLoaded ? await this.#listing() : ''
    await this.#run(load(wanted))
    if (this.#isLoaded && (await this.#listing()) !== before) this.#repairs.ofPart(this, 'nft', [`nft table ${TABLE}`])
    this.#isLoaded = true
  }

  async #listing(): Promise<string> {
    return (await this.#context.run(['nft', '-s', 'list', 'table', 'inet', TABLE], '')).stdout
  }

  async #run(text: string): Promise<void> {
    if (text === '') return
    this.#now = undefined
    const { status, stderr } = await this.#context.run(TOOL, `${text}\n`)
    if (status !== 0) throw new Error(`nft: ${stderr.trim().split('\n', 1)[0] || `ended with status ${status}`}`)
  }
}
