import { andMore } from '../../lib/text/listing.ts'
import { type Step, sentences } from '../kernel/batch.ts'
import { face } from '../kernel/diff.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import type { Failure } from '../scheduler/failures.ts'
import { called } from './peers.ts'

/** The reason for each peer that cannot be reached, by the key of its lease. */
export type Unreached = ReadonlyMap<SubnetKey, string>

/** The number of reasons that are reported at once. */
const NAMED = 5
// Messages of tools that concern the whole node and not one peer.
const OF_NODE =
  /there is no link|Cannot find device|not permitted|Permission denied|Out of memory|Cannot allocate memory|No buffer space/

/**
 * Splits the failures of a step into those of single peers and those of the node. A failed removal cuts off no peer.
 */
export function scoped(
  { failures }: Pick<Outcome, 'failures'>,
  ownersOf: (keys: ReadonlySet<string>) => ReadonlyMap<string, SubnetKey>,
): { readonly peers: Unreached; readonly others: readonly Failure[] } {
  const keyOf = ({ resource }: Step) => face(resource).key
  const ofPeers = [...failures].filter(([, message]) => !OF_NODE.test(message))
  const owners = ownersOf(new Set(ofPeers.map(([step]) => keyOf(step))))
  const peers = new Map<SubnetKey, string>()
  const groups: Record<Failure['scope'], Map<Step, string>> = { node: new Map(), part: new Map() }
  for (const [step, message] of failures) {
    const owner = owners.get(keyOf(step))
    if (owner === undefined) groups[step.put ? 'node' : 'part'].set(step, message)
    else if (!peers.has(owner)) peers.set(owner, sentences(new Map([[step, message]]))[0] as string)
  }
  return {
    peers,
    others: (['node', 'part'] as const).flatMap((scope) => sentences(groups[scope]).map((text) => ({ scope, text }))),
  }
}

/** Gives one sentence per reason, for any number of peers. One more counts the peers with other reasons. */
export function summary(unreached: Unreached, leases: readonly Lease[]): string[] {
  if (unreached.size === 0) return []
  const groups = new Map<string, Lease[]>()
  for (const lease of leases) {
    const why = unreached.get(encodeKey(lease.subnets))
    if (why === undefined) continue
    const group = groups.get(why)
    if (group) group.push(lease)
    else groups.set(why, [lease])
  }
  const all = [...groups]
  const texts = all.slice(0, NAMED).map(([why, [first, ...more]]) => {
    return `Cannot reach ${called(first as Lease)}${andMore(more.length)}: ${why}`
  })
  const rest = all.slice(NAMED).reduce((count, [, { length }]) => count + length, 0)
  return rest > 0 ? [...texts, `Cannot reach ${rest} more peers, for other reasons`] : texts
}

/** The entries of `now` that `before` lacks or has with another reason. */
export function newlyUnreached(now: Unreached, before: Unreached): Unreached {
  return now === before ? new Map() : new Map([...now].filter(([key, why]) => before.get(key) !== why))
}
