// A trace is a list of hops. The oracle says what should happen at each of them, the packet what does. Both use the
// words of this file.

/** The hops in the order in which a packet meets them. */
export const HOPS = [
  'sender',
  'link',
  'guard',
  'service',
  'route',
  'rules',
  'policy',
  'source',
  'exit',
  'tunnel',
  'far link',
  'far route',
  'far rules',
  'far policy',
  'far exit',
  'receiver',
  'answer',
] as const
/**
 * The name of a hop. `rules` are those of other programs. `source` is whether the packet keeps its source address. `tunnel`
 * is the packet that carries it to another node. Hops that begin with `far` are on that node.
 */
export type HopName = (typeof HOPS)[number]

/** What happens at a hop. */
export interface Outcome {
  readonly passes: boolean
  /** What happens, in words without a verdict: `br0 → veth1`. */
  readonly says: string
  /** What two outcomes that both pass must have in common. */
  readonly key?: string
}
/** The packet passes. */
export function passing(says: string, key?: string): Outcome {
  return { passes: true, says, ...(key !== undefined && { key }) }
}

/** The packet ends here. */
export function failing(says: string): Outcome {
  return { passes: false, says }
}

/** The outcomes by hop. A hop that is missing is not known, or not met. */
export type Outcomes = ReadonlyMap<HopName, Outcome>

/** One hop: what should happen, and what does. */
export interface Hop {
  readonly hop: HopName
  readonly expected?: Outcome
  readonly seen?: Outcome
  /** Both are known, and they are not the same. */
  readonly differs: boolean
}
/** The result of a trace. */
export interface Comparison {
  readonly hops: readonly Hop[]
  /** The first hop where the packet and the oracle differ. */
  readonly differsAt?: HopName
  /** The hop where the packet is lost. */
  readonly lostAt?: HopName
}

/** Lays the outcomes side by side, up to the hop where the packet is lost. Pure. */
export function compare(expected: Outcomes, seen: Outcomes): Comparison {
  const hops: Hop[] = []
  for (const hop of HOPS) {
    const [want, is] = [expected.get(hop), seen.get(hop)]
    if (!want && !is) continue
    // A packet that went on was not lost here.
    const isPast = HOPS.slice(HOPS.indexOf(hop) + 1).some((later) => seen.has(later))
    const differs = want !== undefined && (is === undefined ? !want.passes && isPast : isOther(want, is))
    hops.push({ hop, ...(want && { expected: want }), ...(is && { seen: is }), differs })
    if (is?.passes === false) break
  }
  const differsAt = hops.find(({ differs }) => differs)?.hop
  const lostAt = hops.find((one) => one.seen?.passes === false)?.hop
  return { hops, ...(differsAt && { differsAt }), ...(lostAt && { lostAt }) }
}

function isOther(want: Outcome, is: Outcome): boolean {
  if (want.passes !== is.passes) return true
  return want.passes && want.key !== undefined && is.key !== undefined && want.key !== is.key
}
