import { BRIDGE_FILTERS, maybeSysctl, sysctlName } from '../../lib/os/sysctls.ts'
import { FORMER_POLICY_KINDS } from '../cluster/kinds.ts'
import type { ObjectSource } from '../cluster/source.ts'
import type { Failure } from '../scheduler/failures.ts'
import { POLICY_KINDS } from './state.ts'

// What keeps policy from being enforced, in sentences.

/** The kinds that policy enforces, and those that it only names. */
export const FOLLOWED = [...POLICY_KINDS, ...FORMER_POLICY_KINDS]

/** Refused objects that the status names at once. */
const NAMED = 20

/** The objects that are not known or cannot be read. Without all objects no pod can start. */
export function objectFailures(objects: Pick<ObjectSource, 'trouble' | 'isComplete' | 'refused'>): Failure[] {
  const trouble = objects.trouble(FOLLOWED)
  const isComplete = objects.isComplete(POLICY_KINDS)
  const more = isComplete ? '; the last known objects are enforced' : ''
  const refused = objects.refused(FOLLOWED).slice(0, NAMED)
  return [
    ...(trouble === undefined ? [] : [{ scope: isComplete ? 'part' : 'node', text: `${trouble}${more}` } as const]),
    ...refused.map((text) => ({ scope: 'part', text: `${text}; the other objects are enforced` }) as const),
  ]
}

/** The settings of the kernel that frames between two pods of one bridge need, to meet the rules (br_netfilter). */
export function bridgeFailures(): Failure[] {
  const wrong = BRIDGE_FILTERS.filter((name) => maybeSysctl(name) !== '1')
  if (wrong.length === 0) return []
  const what = 'Cannot apply network policy between pods of one bridge'
  const names = wrong.map(sysctlName)
  const [verb, it] = names.length === 1 ? ['is', 'it'] : ['are', 'them']
  const why = `${names.join(' and ')} ${verb} not 1; load br_netfilter and set ${it}`
  return [{ scope: 'node', text: `${what}: ${why}` }]
}
