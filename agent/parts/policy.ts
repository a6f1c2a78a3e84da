import type { Run } from '../../lib/os/run.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Changes } from '../cluster/changes.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import { PolicyAnswers } from '../policy/answers.ts'
import { Attachments } from '../policy/attachments.ts'
import { Connections } from '../policy/connections.ts'
import { DropLog, type DropLogOptions } from '../policy/drops.ts'
import { bridgeFailures, FOLLOWED, objectFailures } from '../policy/failures.ts'
import { closeUnknown, PolicyProgram } from '../policy/program.ts'
import { PolicyState } from '../policy/state.ts'
import { logOf, type TableOptions } from '../policy/table.ts'
import { numbersOf } from '../policy/view.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import type { EnforcementSettings } from '../settings/settings.ts'
import { initialState, withStep } from '../state/condition.ts'
import { BasePart, type Shared } from './base.ts'

/** When a new link is looked at, and how often the setting of a node without it is. Milliseconds. */
const BRIDGES_MS = 2000

/** What the part needs of the agent. */
export interface PolicyPartOptions extends DropLogOptions {
  readonly node: string
  readonly objects: ObjectSource
  readonly run: Run
  /** The subnets of this node in an earlier run. */
  readonly before?: Both<Cidr>
  readonly enforcement: EnforcementSettings
  /** The network of pods that the agent installs has a bridge. */
  readonly isBridged: boolean
  /** Called after connections have ended: their packets may take the fast path. Throws ExecError. */
  ended(): Promise<void>
  /** Takes the fast path away by a transaction of `run`, which ends connections. Throws ExecError. */
  suspend(run: Run): Promise<void>
}

/** Keeps NetworkPolicy in the kernel, for the pods of this node. The tables stay when the agent ends. */
export class PolicyPart extends BasePart<PolicyPartOptions> {
  readonly name = 'policy'
  readonly trouble = 'Cannot program NetworkPolicy'
  readonly quietMs = 0
  /** What the plugin `policy` asks. */
  readonly attachments: Attachments
  /** What people ask. */
  readonly answers: PolicyAnswers
  readonly drops: DropLog
  readonly #changes: Changes
  readonly #state: PolicyState
  readonly #program: PolicyProgram
  readonly #connections: Connections
  #steps = initialState().steps

  constructor(options: PolicyPartOptions, shared: Shared) {
    super(options, shared)
    const { queue } = this
    const { objects } = options
    this.attachments = new Attachments(objects, {
      changed: (key) => {
        this.#changes.note('pods', key)
        queue.addUrgent('attachments')
      },
      begins: () => queue.add('bridges', BRIDGES_MS),
      trouble: () => this.#program.trouble,
    })
    this.#changes = objects.changes(FOLLOWED, () => {
      this.answers.changed()
      if (this.attachments.isAwaited) queue.addUrgent('objects')
      else queue.add('objects')
    })
    this.#state = new PolicyState(objects.objects, options.node, this.attachments.endpoints)
    this.#program = new PolicyProgram(this.#state, this.attachments.endpoints)
    this.#connections = new Connections(this.#state, objects.objects, {
      report: (failures) => options.failures.report('connections of policy', failures),
      again: (afterMs) => queue.add('connections', afterMs),
      ended: options.ended,
    })
    const known = { objects, state: this.#state, attachments: this.attachments, run: options.run }
    this.answers = new PolicyAnswers({ ...known, options: () => this.#tableOptions() })
    this.drops = new DropLog(
      options,
      () => this.answers.soFar(),
      () => queue.add('log'),
    )
  }

  /** Takes the attachments of the journal, as soon as the socket listens (`Attachments`). */
  restore(): void {
    this.attachments.restore()
    this.#program.look(true)
  }

  invalidate(): void {
    this.#program.invalidate()
  }

  /** Whether pods of this node are, or may be, ports of a bridge. */
  isBridged(): boolean {
    return this.given.isBridged || this.#program.mayBeBridged
  }

  async step(why: readonly string[]): Promise<Outcome> {
    if (why.includes('resync')) this.attachments.forgetGone()
    const [options, { run }] = [this.#tableOptions(), this.given]
    if (!this.answers.isComplete) {
      await closeUnknown(this.given.objects.objects, options, run)
      this.#sayObjects()
      return WAITING
    }
    const [written, began] = [this.attachments.begin(), performance.now()]
    const changed = this.#changes.take()
    this.#state.apply(changed)
    if (changed.size > 0) for (const one of [this.answers, this.#connections]) one.changed()
    const ends = !options.isAudit && !options.keepsEstablished
    const { isAwaited } = this.attachments
    const hasEnded = ends && (await this.#connections.endFirst(this.#state.takeTightened(), isAwaited))
    const besides = hasEnded ? [this.given.suspend] : []
    const repaired = await this.#program.step(options, run, this.repairs.isHeld(this), besides)
    if (repaired.length > 0) this.repairs.ofPart(this, 'nft', repaired)
    written()
    const tightened = this.#state.takeTightened()
    if (ends) await this.#connections.end(tightened)
    this.#steps = withStep(this.#steps, (performance.now() - began) / 1000)
    this.#say()
    return DONE
  }

  #say(): void {
    const numbers = numbersOf(this.answers.soFar())
    this.now.policy = { ...numbers, refused: this.given.objects.refused(FOLLOWED).length, steps: this.#steps }
    const failures = this.isBridged() ? bridgeFailures() : []
    if (failures.length > 0) this.queue.add('bridges', BRIDGES_MS)
    this.given.failures.report('bridges', failures)
    this.#sayObjects()
  }

  #sayObjects(): void {
    this.now.unknownObjects = { ...this.now.unknownObjects, policy: this.given.objects.trouble(FOLLOWED) }
    this.given.failures.report('objects of policy', objectFailures(this.given.objects))
  }

  #tableOptions() {
    const lease = this.now.served ?? this.now.lease
    const { isAudit, keepsEstablished } = this.given.enforcement
    const subnets = lease ? both(lease.subnets) : both(this.given.before ?? {})
    return { subnets, isAudit, keepsEstablished, ...(this.drops.isHeard && { log: logOf }) } satisfies TableOptions
  }
}
