import { pairsOf } from './cases.ts'
import { factsOf } from './connectivity.ts'
import type { End, EndFacts } from './end.ts'
import { type CaseOptions, FAMILIES, type Side } from './routes.ts'

/** What a stream from one node to another carries. */
export interface Throughput {
  readonly family: 'IPv4' | 'IPv6'
  readonly from: Side
  readonly to: Side
  /** What arrived in a second, in megabits. Absent when it could not be measured. */
  readonly mbits?: number
  /** The same from node to node, without a tunnel. Only measured when that of the pods is at most SLOW. */
  readonly nodesMbits?: number
  /** In words: what was measured, and what it means. */
  readonly says: string
}

/** Tunnels with a wrong checksum offload carry 50 to 300 Mbit/s (calico#11435). */
const SLOW = 300
/** The nodes carry at least so many times as much as the slow tunnel between them. */
const TIMES = 2

/**
 * Measures one TCP stream for a second in each direction between nodes, from pod to pod, one after another. With
 * `isPodless` from node to node. Never rejects: what fails is said.
 */
export async function measureAll(
  ends: ReadonlyMap<string, End>,
  { isPodless = false, round = 0 }: CaseOptions,
): Promise<Throughput[]> {
  const found: Throughput[] = []
  const facts = factsOf(ends)
  for (const [near, far] of pairsOf([...ends.keys()], round)) {
    if (near === far) continue
    const way = wayOf(facts, near, far, isPodless ? 'node' : 'pod 1')
    if (!way) continue
    const { mbits, says } = await measured(ends, way)
    const nodes = !isPodless && mbits !== undefined && mbits <= SLOW ? wayOf(facts, near, far, 'node') : undefined
    const nodesMbits = nodes && (await measured(ends, nodes)).mbits
    const words = mbits === undefined ? says : judge(near, mbits, nodesMbits)
    found.push({
      ...way,
      ...(mbits !== undefined && { mbits }),
      ...(nodesMbits !== undefined && { nodesMbits }),
      says: words,
    })
  }
  return found
}

/** What a throughput means, in words. `nodes` is that of the nodes themselves. Both in megabits a second. Pure. */
export function judge(sender: string, pods: number, nodes: number | undefined): string {
  const says = `${pods} Mbit/s arrive`
  if (nodes === undefined) return says
  if (pods > SLOW || nodes < TIMES * pods) return `${says}; from node to node ${nodes}`
  return `${says}, and from node to node ${nodes}: the tunnel is slow; with vxlan, set tx-checksum-offload: off on ${sender}`
}

// A way of the first family that both nodes have.
function wayOf(
  facts: ReadonlyMap<string, EndFacts>,
  near: string,
  far: string,
  place: 'node' | 'pod 1',
): Pick<Throughput, 'family' | 'from' | 'to'> | undefined {
  for (const [family, key] of FAMILIES) {
    const [from, to] = [facts.get(near)?.places[place][key], facts.get(far)?.places[place][key]]
    if (from && to) return { family, from: { node: near, place, address: from }, to: { node: far, place, address: to } }
  }
  return undefined
}

async function measured(
  ends: ReadonlyMap<string, End>,
  { from, to }: Pick<Throughput, 'from' | 'to'>,
): Promise<Pick<Throughput, 'mbits' | 'says'>> {
  const { ip, sink } = to.address
  if (sink === undefined) return { says: `plumb is too old for it on ${to.node}` }
  try {
    const tried = { protocol: 'TCP', to: ip, port: sink, bytes: 0, isPour: true } as const
    const { state, says, mbits } = await (ends.get(from.node) as End).attempt(from.place, tried)
    if (mbits !== undefined) return { mbits, says }
    return { says: state === 'arrived' ? `plumb is too old for it on ${from.node}` : says }
  } catch (cause) {
    return { says: (cause as Error).message }
  }
}
