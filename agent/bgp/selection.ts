import type { Ip } from '../../lib/text/ip.ts'
import type { Labels, Selector } from '../cluster/reading.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import { matches } from '../policy/matching.ts'
import type { BgpConfiguration, OuterPeer } from './configuration.ts'

/** Who a node has sessions with, by the names and labels of nodes. */
export interface Selection {
  /** The routers that this node has as peers, each address once. */
  readonly peers: readonly OuterPeer[]
  isReflector(who: Who): boolean
  /** What the selectors select that cannot be right, one sentence each. */
  readonly problems: readonly string[]
}

/** A node as its lease names it. The store etcd knows no names. */
export interface Who {
  readonly node?: string
  readonly ips: Both<Ip>
}

/** The nodes that selectors are judged by. */
export interface Nodes {
  /** This node. */
  readonly self: Who & { readonly node: string }
  /** The other nodes that have a subnet. */
  readonly others: readonly Who[]
  /** The labels of a node. Undefined when they are not known: no selector selects it then. */
  labelsOf(node: string): Labels | undefined
}

/** Whether a configuration depends on the labels of nodes. */
export function usesLabels({ peers, routeReflectors }: BgpConfiguration): boolean {
  return routeReflectors?.nodeSelector !== undefined || peers.some(({ nodeSelector }) => nodeSelector !== undefined)
}

/** Decides who a node has sessions with. Pure. */
export function select({ peers, routeReflectors }: BgpConfiguration, { self, others, labelsOf }: Nodes): Selection {
  const isOneOf = ({ node, ips }: Who, nodes: readonly string[] | undefined, selector: Selector | undefined) => {
    if (nodes?.some((one) => one === node || both(ips).includes(one as Ip))) return true
    const labels = selector && node !== undefined ? labelsOf(node) : undefined
    return labels !== undefined && matches(selector as Selector, labels)
  }
  const problems: string[] = []
  const chosen = new Map<string, OuterPeer>()
  for (const peer of peers) {
    const isForAll = peer.nodes === undefined && peer.nodeSelector === undefined
    if (!isForAll && !isOneOf(self, peer.nodes, peer.nodeSelector)) continue
    const first = chosen.get(peer.address)
    if (!first) chosen.set(peer.address, peer)
    else
      problems.push(
        `two peers of ${self.node} have the address ${peer.address}, the first one counts (AS ${first.asn}); want each address once on a node`,
      )
  }
  const isReflector = (who: Who) =>
    routeReflectors !== undefined && isOneOf(who, routeReflectors.nodes, routeReflectors.nodeSelector)
  if (routeReflectors) {
    const nameOf = ({ node, ips }: Who) => node ?? both(ips)[0]
    const found = [...new Set([self, ...others].filter(isReflector).map(nameOf))]
    const which =
      found.length === 0 ? 'none of the nodes is a route reflector' : `${found[0]} is the only route reflector`
    if (found.length < 2) problems.push(`${which}; want two at least, as one may die`)
  }
  return { peers: [...chosen.values()], isReflector, problems }
}
