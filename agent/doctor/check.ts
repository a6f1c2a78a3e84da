import type { Failure } from '../scheduler/failures.ts'
import type { Severity } from '../state/status.ts'
import type { Facts } from './facts/index.ts'

/** The code of a check, such as `DR1`. It never changes, so that runbooks and alerts may name it. */
export type Code = `DR${number}`

/** A fault as a check saw it on this node. */
export interface SeenFault {
  /** What is wrong, with the value that was seen. One sentence without a full stop. */
  readonly what: string
  /** What does not work because of it. Continues the sentence after a colon. */
  readonly effect: string
  /** The commands that mend it, each one line for a shell. */
  readonly commands: readonly string[]
}

/**
 * A check of the doctor. It compares facts and changes nothing, so that a unit test can hand it any facts. A healthy
 * node gives no finding. `Name` are the facts that it reads.
 */
export interface Check<Name extends keyof Facts = keyof Facts> {
  readonly code: Code
  /** A few words, such as `forwarding is off`. */
  readonly title: string
  /** `error`: packets are lost, or pods cannot start. `warning`: they will be, or only for some. */
  readonly severity: Severity
  /** The codes of possible causes. A finding of one of them hides the findings of this check. */
  readonly dependsOn?: readonly Code[]
  /**
   * The agent makes this check, too, with the facts that need no process (`facts/of-agent.ts`). A finding is a failure
   * of the node, which is then not ready, or of a part, by which it is degraded.
   */
  readonly inAgent?: Failure['scope']
  /**
   * Findings are about settings and links of the node alone, and name no pod. A redacted status shows them whole
   * (`--status-redact`). Of other checks it shows the code and the title.
   */
  readonly isOfNode?: true
  /** The facts that `detect` reads. It gets no others. */
  readonly reads: readonly Name[]
  detect(facts: Pick<Facts, Name>): readonly SeenFault[]
}

/** A check, whose `detect` has the facts that `reads` names. */
export function defineCheck<const Name extends keyof Facts>(check: Check<Name>): Check {
  return check
}
