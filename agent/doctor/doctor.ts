// The doctor says what is wrong with a node, what does not work because of it, and which command mends it. Begin here.
// `facts/` reads the node once. Each file of `checks/` is one check: pure detection over the facts. The agent makes some
// of the checks, too (`inAgent`).
import type { Failure } from '../scheduler/failures.ts'
import { sentenceOf } from '../state/phrases.ts'
import type { Finding } from '../state/status.ts'
import type { Check, Code } from './check.ts'
import { CHECKS } from './checks/index.ts'
import { NotRead } from './facts/facts.ts'
import type { Facts } from './facts/index.ts'

/** What the doctor says of a node. */
export interface Report {
  /** Errors first, then by code. */
  readonly findings: readonly Finding[]
  /** The findings that follow from another one, which is the last of each. */
  readonly hidden: readonly (Finding & { readonly because: string })[]
  /** The checks that were made. */
  readonly made: readonly Code[]
  /** The checks that were not made, and why. */
  readonly notMade: readonly { readonly code: Code; readonly why: string }[]
}

/** The checks that the agent makes. */
export const AGENT_CHECKS: readonly Check[] = CHECKS.filter(({ inAgent }) => inAgent !== undefined)

/** Makes the checks over the facts. A finding that follows from another one is hidden behind its cause. Pure. */
export function examine(facts: Facts, checks: readonly Check[] = CHECKS): Report {
  const found = new Map<Code, Finding[]>()
  const [made, notMade]: [Code[], Report['notMade'][number][]] = [[], []]
  for (const check of checks) {
    const { code, title, severity } = check
    try {
      const seen = check.detect(facts)
      made.push(code)
      if (seen.length === 0) continue
      const findings = seen.map(({ what, effect, commands }) => ({
        code,
        title,
        severity,
        text: `${what}: ${effect}`,
        commands,
      }))
      found.set(code, findings)
    } catch (cause) {
      if (!(cause instanceof NotRead)) throw cause
      notMade.push({ code, why: cause.message })
    }
  }
  const [findings, hidden]: [Finding[], Report['hidden'][number][]] = [[], []]
  for (const { code, dependsOn = [] } of checks) {
    const because = dependsOn.find((cause) => found.has(cause))
    for (const one of found.get(code) ?? []) {
      if (because === undefined) findings.push(one)
      else hidden.push({ ...one, because })
    }
  }
  return { findings: findings.sort(bySeverity), hidden, made, notMade }
}

/** The findings of the agent's checks as failures, one sentence each: of the node, or of a part. Pure. */
export function failuresOf(findings: readonly Finding[]): Failure[] {
  return findings.map((one) => {
    const scope = AGENT_CHECKS.find(({ code }) => code === one.code)?.inAgent ?? 'part'
    return { scope, text: sentenceOf(one) }
  })
}

function bySeverity(one: Finding, other: Finding): number {
  if (one.severity !== other.severity) return one.severity === 'error' ? -1 : 1
  return numberOf(one.code) - numberOf(other.code)
}

function numberOf(code: string): number {
  return Number(code.slice(2))
}
