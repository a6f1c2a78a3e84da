import type { Labels, Selector } from '../cluster/reading.ts'
import { matches } from '../policy/matching.ts'
import type { BgpConfiguration, OuterPeer } from './configuration.ts'

/** Who a node has sessions with, by the names and labels of nodes. */
export interface Selection {
  /** The routers that this node has as peers, each address once. */
  readonly peers: readonly OuterPeer[]
  /** Whether a node is a reflector. A node without a name is none. */
  isReflector(node: string | undefined): boolean
  /** What the selectors select that cannot be right, one sentence each. */
  readonly problems: readonly string[]
}

/** The nodes that selectors are judged by. */
export interface Nodes {
  /** This node. */
  readonly node: string
  /** The names of the other nodes that have a subnet. */
  readonly others: Iterable<string | undefined>
  /** The labels of a node. Undefined when they are not known: no selector selects it then. */
  labelsOf(node: string): Labels | undefined
}

/** Whether a configuration depends on the labels of nodes. */
export function usesLabels({ peers, routeReflectors }: BgpConfiguration): boolean {
  return routeReflectors?.nodeSelector !== undefined || peers.some(({ nodeSelector }) => nodeSelector !== undefined)
}

/** Decides who a node has sessions with. Pure. */
export function select({ peers, routeReflectors }: BgpConfiguration, { node, others, labelsOf }: Nodes): Selection {
  const isOneOf = (name: string, nodes: readonly string[] | undefined, selector: Selector | undefined): boolean => {
    if (nodes?.includes(name)) return true
    const labels = selector && labelsOf(name)
    return labels !== undefined && matches(selector as Selector, labels)
  }
  const problems: string[] = []
  const chosen = new Map<string, OuterPeer>()
  for (const peer of peers) {
    const isForAll = peer.nodes === undefined && peer.nodeSelector === undefined
    if (!isForAll && !isOneOf(node, peer.nodes, peer.nodeSelector)) continue
    const first = chosen.get(peer.address)
    if (!first) chosen.set(peer.address, peer)
    else
      problems.push(
        `two peers of ${node} have the address ${peer.address}, the first one counts (AS ${first.asn}); want each address once on a node`,
      )
  }
  const reflectors = new Map<string, boolean>()
  const isReflector = (name: string | undefined) => {
    if (name === undefined || !routeReflectors) return false
    const known = reflectors.get(name) ?? isOneOf(name, routeReflectors.nodes, routeReflectors.nodeSelector)
    reflectors.set(name, known)
    return known
  }
  if (routeReflectors) {
    const found = [...new Set([node, ...others])].filter(isReflector)
    const which =
      found.length === 0 ? 'none of the nodes is a route reflector' : `${found[0]} is the only route reflector`
    if (found.length < 2) problems.push(`${which}; want two at least, as one may die`)
  }
  return { peers: [...chosen.values()], isReflector, problems }
}
