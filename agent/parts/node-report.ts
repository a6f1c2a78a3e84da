import { REDACTED, redactedFailures, redactedState } from '../http/redaction.ts'
import type { Undoer } from '../kernel/undoer.ts'
import type { AnnouncedState } from '../state/announcing.ts'
import { conditionOf, type NodeState, statusOf } from '../state/condition.ts'
import type { PodView } from '../state/details.ts'
import type { Status } from '../state/status.ts'
import type { KernelInputs, LeaseInputs, NetworkInputs, Reports, SelfInputs } from './inputs.ts'
import type { LeasePart } from './lease.ts'
import { readPods } from './pods.ts'
import type { PolicyPart } from './policy.ts'
import type { Repairs } from './repairs.ts'

/** What the report reads of the agent. */
export type NodeReportOptions = Pick<SelfInputs, 'node' | 'version'> &
  Pick<NetworkInputs, 'backend' | 'conf'> &
  Pick<LeaseInputs, 'store'> &
  Pick<KernelInputs, 'converger' | 'run'> &
  Pick<Reports, 'failures' | 'condition' | 'changed' | 'warn'>

interface Parts {
  readonly lease: Pick<LeasePart, 'refusal'>
  readonly policy: PolicyPart | undefined
}

/** What all parts together say of the node: to people, to the cluster, and to the log. */
export class NodeReport {
  readonly #given: NodeReportOptions
  readonly #now: NodeState
  readonly #repairs: Repairs
  readonly #parts: () => Parts

  /** `parts` gives those that know more than `now`. */
  constructor(given: NodeReportOptions, now: NodeState, repairs: Repairs, parts: () => Parts) {
    this.#given = given
    this.#now = now
    this.#repairs = repairs
    this.#parts = parts
  }

  /**
   * Reports a failure in the log and in the status. By default, the log has it only when it differs from the last one.
   * `isNew` overrides this.
   */
  note(text: string, isNew = this.#now.lastError?.what !== text): void {
    if (isNew) this.#given.warn(`agent: ${text}`)
    this.#now.lastError = { at: Date.now(), what: text }
  }

  /** Notes that a program undid what the agent had made. One whose parent is known tells more than one without. */
  undone(by: Undoer): void {
    const before = this.#now.undoer
    if (by.parent !== undefined || before?.parent === undefined || before.name !== by.name) this.#now.undoer = by
  }

  /** The current status. */
  status(): Status {
    return statusOf(this.#given, this.#nodeState())
  }

  /** The same without names of pods, policies and Services (`http/redaction.ts`). */
  redactedStatus(): Status {
    const state = this.#nodeState()
    const failures = redactedFailures(this.#given.failures, state.findings)
    return { redacted: REDACTED, ...statusOf({ ...this.#given, failures }, redactedState(state)) }
  }

  /** What the cluster is to know of this node. The cost does not depend on the number of peers. */
  announcement(): AnnouncedState {
    const state = this.#nodeState()
    // Only a closed pod makes the list of all pods worth its time.
    const isClosed = (state.policy?.closed ?? 0) > 0
    const pods = isClosed ? (this.#parts().policy?.answers.view() ?? []) : []
    const closed = pods.filter((one) => one.isClosed).map(({ pod }) => pod)
    return { ...conditionOf(this.#given, state), findings: state.findings, closed }
  }

  /** The pods of this node that plugins have attached. Throws Error. */
  pods(): Promise<PodView[]> {
    return readPods(this.#given.run, this.#parts().policy?.answers.view())
  }

  /** Judges the condition of the node from what is known now. */
  judge(): void {
    this.#given.condition(conditionOf(this.#given, this.#nodeState()))
  }

  /** Tells the readers of the status that it may have changed. */
  publish(): void {
    this.#given.changed(() => this.status())
  }

  #nodeState(): NodeState {
    const { converger } = this.#given
    return {
      ...this.#now,
      refusal: this.#parts().lease.refusal,
      fights: this.#repairs.fights((key) => converger.isPending(key)),
      handshakes: () => converger.handshakes(),
      fightCount: this.#repairs.fightCount((key) => converger.isPending(key)),
    }
  }
}
