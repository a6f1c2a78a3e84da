import type { Run } from '../../lib/os/run.ts'
import type { ObjectSource } from '../cluster/source.ts'
import type { Attachments } from './attachments.ts'
import type { Comparison } from './comparison.ts'
import { Counters, type PolicyCounts } from './counters.ts'
import type { CellView, PolicyMatrix } from './matrix.ts'
import { PairQuestions } from './pair-questions.ts'
import type { DraftTexts } from './snapshot.ts'
import { POLICY_KINDS, type PolicyState } from './state.ts'
import type { TableOptions } from './table.ts'
import { detail, type PodDetail, type PodSummary, type PolicyKnowledge, summaries } from './view.ts'

/** What the answers are made from. */
interface AnswerSources {
  readonly objects: ObjectSource
  readonly state: PolicyState
  readonly attachments: Attachments
  readonly run: Run
  options(): TableOptions
}

/** Answers what people ask about policy, from what the agent knows now. */
export class PolicyAnswers {
  readonly #of: AnswerSources
  readonly #counters: Counters
  readonly #pairs = new PairQuestions(() => this.known())

  constructor(sources: AnswerSources) {
    this.#of = sources
    this.#counters = new Counters(sources.run, () => sources.state.counted())
  }

  /** What the agent knows. Throws CniError 11 while the objects of the cluster are not known. */
  known(): PolicyKnowledge {
    this.#of.attachments.ready()
    return this.soFar()
  }

  /** The same. Objects may be missing. */
  soFar(): PolicyKnowledge {
    const { objects, state, options } = this.#of
    const { subnets, isAudit } = options()
    return { cluster: objects.objects, state, subnets, isAudit }
  }

  /** Whether the objects of the cluster are known. */
  get isComplete(): boolean {
    return this.#of.objects.isComplete(POLICY_KINDS)
  }

  /** What is known has changed. */
  changed(): void {
    this.#pairs.changed()
  }

  /** The pods of this node with their policies. Empty while the objects of the cluster are not known. */
  view(): PodSummary[] {
    return this.isComplete ? summaries(this.known()) : []
  }

  /** One pod of this node with its rules. Undefined for another pod, and while the objects are not known. */
  detail(pod: string): PodDetail | undefined {
    return this.isComplete && this.#of.state.locals.has(pod) ? detail(this.known(), pod) : undefined
  }

  /** The counters of the table. Throws Error when nft does not give them. */
  counts(): Promise<PolicyCounts> {
    return this.#counters.read()
  }

  /** Which namespaces reach which. Undefined while the objects are not known. Throws NoAnswerError and ValueError. */
  async matrix(): Promise<PolicyMatrix | undefined> {
    return this.isComplete ? this.#pairs.matrix() : undefined
  }

  /** The pods behind a cell of the matrix. Undefined while the objects are not known. Throws as `matrix`. */
  async cell(from: string, to: string): Promise<CellView | undefined> {
    return this.isComplete ? this.#pairs.cell(from, to) : undefined
  }

  /** What policies would change that nobody has applied. Throws as `known` and `matrix`. */
  async comparison(drafts: DraftTexts): Promise<Comparison> {
    this.#of.attachments.ready()
    return this.#pairs.comparison(drafts)
  }

  /** Ends the process that answers, if there is one. */
  stop(): void {
    this.#pairs.stop()
  }
}
