import { entries, LINK } from '../../lib/journal/journal.ts'
import { linksNow } from '../../lib/os/links.ts'
import { linkTowards } from '../../lib/os/route-tables.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { IfName } from '../../lib/text/values.ts'
import type { Endpoints } from './endpoints.ts'
import type { PolicyState } from './state.ts'

/** Where a pod is: its link on the node and its addresses. */
export interface PodPlace {
  readonly link: IfName
  /** The link is a port of a bridge. While ADD makes it, it is none yet. */
  readonly isPort: boolean
  readonly addresses: readonly Ip[]
  /** A policy refuses what it does not allow to the pod, or all of its packets are refused. */
  readonly isIsolated: boolean
  /** A policy refuses some of what the pod sends. */
  readonly isConfined: boolean
}
/** The places of this node's pods. */
export interface PodPlaces {
  readonly pods: readonly PodPlace[]
  /** Ports of bridges with an isolated pod whose own port is not known. Each of them may be that pod's. */
  readonly strangers: readonly IfName[]
  /** The node has a bridge, so that any link may become its port. */
  readonly hasBridge: boolean
}

/**
 * Finds the links of the pods of this node: those that ADD has announced, and those in the journal of plumb's plugins.
 * Another program's plugin announces nothing. Of its pods, the bridge alone is known, by the route to them. With
 * `isAudit` nobody counts as isolated.
 */
export function placesOf(
  endpoints: Pick<Endpoints, 'all' | 'keyOf'>,
  locals: PolicyState['locals'],
  isAudit: boolean,
): PodPlaces {
  const restrictions = (key: string) => {
    const local = isAudit ? undefined : locals.get(key)
    const isClosed = local?.isClosed === true
    return {
      isIsolated: isClosed || local?.chains.ingress !== undefined,
      isConfined: isClosed || local?.chains.egress !== undefined,
    }
  }
  const links = linksNow()
  const hasBridge = links.some(({ kind }) => kind === 'bridge')
  const ports = new Set(links.flatMap(({ name, master }) => (master === undefined ? [] : [name])))
  const pods: PodPlace[] = []
  const found = new Set<string>()
  const add = (key: string, link: IfName, addresses: readonly Ip[]) => {
    pods.push({ link, isPort: ports.has(link), addresses, ...restrictions(key) })
    found.add(key)
  }
  for (const one of endpoints.all()) if (one.link !== undefined) add(endpoints.keyOf(one), one.link, one.addresses)
  const missing = () => [...locals].filter(([key, { ips }]) => !found.has(key) && ips.length > 0)
  if (missing().length === 0) return { pods, strangers: [], hasBridge }
  const recorded = recordedLinks()
  for (const [key, { ips }] of missing()) {
    const place = recorded.get(ips[0] as Ip)
    if (place) add(key, place.link, place.addresses)
  }
  const isRestricted = ({ isClosed, chains }: Local) =>
    isClosed || chains.ingress !== undefined || chains.egress !== undefined
  const lost = isAudit ? [] : missing().filter(([, local]) => isRestricted(local))
  // The ports of the bridges that lead to them, without the known ones.
  const towards = new Set(lost.flatMap(([, { ips }]) => ips).map(linkTowards))
  const bridges = new Set(links.flatMap(({ index, kind }) => (kind === 'bridge' && towards.has(index) ? [index] : [])))
  const known = new Set(pods.map(({ link }) => link))
  const isStranger = ({ name, master }: (typeof links)[number]) =>
    master !== undefined && bridges.has(master) && !known.has(name)
  return { pods, hasBridge, strangers: links.filter(isStranger).map(({ name }) => name) }
}

/** Whether some of these pods are, or may be, ports of a bridge. */
export function mayBeBridged({ pods, strangers }: PodPlaces): boolean {
  return strangers.length > 0 || pods.some(({ isPort }) => isPort)
}

type Local = PolicyState['locals'] extends ReadonlyMap<string, infer One> ? One : never

// The links of the journal's attachments, by address.
function recordedLinks(): ReadonlyMap<Ip, Pick<PodPlace, 'link' | 'addresses'>> {
  const found = new Map<Ip, Pick<PodPlace, 'link' | 'addresses'>>()
  for (const { ips, parts } of entries()) {
    const veth = parts[LINK]?.own.find((one) => one.kind === 'link' && one.ns === 'host' && one.type === 'veth')
    if (veth?.kind !== 'link') continue
    const addresses = ips as readonly Ip[]
    for (const ip of addresses) found.set(ip, { link: veth.name, addresses })
  }
  return found
}
