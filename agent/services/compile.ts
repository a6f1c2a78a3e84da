import { contains, hostCidr, isSix } from '../../lib/text/cidr.ts'
import { bitsOf, type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import type { Service, ServicePort, Slice } from '../cluster/services.ts'
import { type Endpoints, endpointsOf, type NodeFacts } from './endpoints.ts'

// Services as data of nft. One Service gives elements of maps that all Services share, so that
// its change touches nothing of another Service. A frontend is an address and port at which clients ask. Its element
// leads to a chain. All frontends with the same number of endpoints share that chain.

/** IPv4 or IPv6. */
export type Family = 4 | 6
/** nft's name of a protocol. */
export type L4 = 'tcp' | 'udp' | 'sctp'

/** The chain of a frontend. Frontends with the same shape share it. */
export interface ChainShape {
  /**
   * Frontends are found by address, protocol and port (`vip`), or by protocol and port on any address of the node
   * (`port`).
   */
  readonly kind: 'vip' | 'port'
  readonly family: Family
  readonly protocol: L4
  /** How many endpoints clients share. */
  readonly cluster: number
  /**
   * How many endpoints of this node clients from outside share (externalTrafficPolicy Local). 0: their packets are
   * dropped. Absent: no difference.
   */
  readonly local?: number
  /** Session affinity, in seconds. */
  readonly sticky?: number
  /** Clients that are no pods of this node get the node's address. */
  readonly isMasked?: true
}

/** An address and port at which clients ask for a Service. */
export interface Frontend {
  readonly kind: ChainShape['kind']
  readonly family: Family
  readonly protocol: L4
  /** nft's text: `10.96.0.1 . tcp . 80`, or `tcp . 30080`. */
  readonly key: string
  /**
   * What happens to clients. `refuse`: no endpoint, they are told so. `drop`: endpoints on other nodes only, which
   * policy Local forbids.
   */
  readonly answer: ChainShape | 'refuse' | 'drop'
  /** The endpoints by slot, in nft's text `10.1.0.2 . 8080`. */
  readonly cluster: readonly string[]
  readonly local: readonly string[]
  /**
   * The endpoints that a UDP client may stay with: all that serve. Of policy Local, those of this node.
   * `lastingLocal`: for clients from outside, where they have others. Empty for other protocols.
   */
  readonly lasting: readonly string[]
  readonly lastingLocal: readonly string[]
  /** The address of a `vip`, and the fields of the Service that have it. A ClusterIP has no other field. */
  readonly ip?: Ip
  readonly of: readonly AddressField[]
  /** Whether this node serves clients from outside at the address: what BGP may announce. */
  readonly isReached: boolean
}

/** A field of a Service with addresses. */
export type AddressField = 'clusterIPs' | 'externalIPs' | 'loadBalancerIPs'

/** What one Service needs of the kernel. */
export interface CompiledService {
  /** By kind, family and key. */
  readonly frontends: ReadonlyMap<string, Frontend>
  /** The ClusterIPs. Unknown ports of them are refused. */
  readonly vips: readonly Ip[]
  /** Endpoints that may reach themselves: those of this node, and those whose node nobody names. */
  readonly hairpins: readonly Ip[]
  /** Frontends that only some sources may use, with these sources. */
  readonly restricted: ReadonlyMap<string, readonly Cidr[]>
  /** healthCheckNodePort, and the number of ready endpoints of this node. */
  readonly health?: { readonly port: number; readonly local: number }
  /** When the Service was made. Of two that name one address, the older one has it. Milliseconds since 1970. */
  readonly createdAt?: number
}

/** No Service. */
export const NOTHING: CompiledService = {
  frontends: new Map(),
  vips: [],
  hairpins: [],
  restricted: new Map(),
}
const NODE_PORT: readonly AddressField[] = []
const NONE: readonly string[] = []

/**
 * Compiles one Service with its slices for one node. `before` is the result for an earlier state of the Service:
 * endpoints keep their slots. Pure.
 */
export function compile(
  service: Service,
  slices: Iterable<Slice>,
  node: NodeFacts,
  before: CompiledService = NOTHING,
): CompiledService {
  const all = [...slices]
  const frontends = new Map<string, Frontend>()
  const restricted = new Map<string, readonly Cidr[]>()
  const hairpins = new Set<Ip>()
  const healthy = new Set<Ip>()
  // Each port of each family has endpoints of its own.
  const cached = new Map<string, Endpoints>()
  const endpoints = (port: ServicePort, family: Family) => {
    const key = `${family} ${port.protocol} ${port.name}`
    const found = cached.get(key) ?? endpointsOf(service, port, family, all, node)
    cached.set(key, found)
    return found
  }
  const add = (port: ServicePort, family: Family, key: string, of: readonly AddressField[], ip?: Ip) => {
    const kind = ip === undefined ? 'port' : 'vip'
    const isExternal = !of.includes('clusterIPs')
    const name = `${kind}${family} ${key}`
    const had = before.frontends.get(name)
    const protocol = port.protocol.toLowerCase() as L4
    const found = endpoints(port, family)
    const sticky = service.affinitySeconds
    for (const { ip } of found.everyHere) hairpins.add(ip)
    for (const { ip, isReady } of found.everyLocal) if (isReady || service.publishesNotReady) healthy.add(ip)
    const isSplit = isExternal && service.isExternalLocal
    const isLocal = !isExternal && service.isInternalLocal
    const cluster = slotsOf(isLocal ? found.local : found.cluster, had?.cluster)
    const local = isSplit ? slotsOf(found.local, had?.local) : []
    const shape: ChainShape = {
      kind,
      family,
      protocol,
      ...(sticky !== undefined && { sticky }),
      cluster: cluster.length,
      ...(isSplit && { local: local.length }),
      ...(isExternal && { isMasked: true }),
    }
    const isServed = cluster.length + local.length > 0
    const answer = isServed ? shape : found.isAny ? 'drop' : 'refuse'
    const isReached = ip !== undefined && isServedOutside(service, found, isExternal)
    const end = { ...(ip !== undefined && { ip }), of, isReached }
    const [lasting, lastingLocal] =
      protocol !== 'udp'
        ? [NONE, NONE]
        : [isLocal ? found.servingLocal : found.serving, isSplit ? found.servingLocal : NONE]
    frontends.set(name, { kind, family, protocol, key, answer, cluster, local, lasting, lastingLocal, ...end })
  }
  // A Service answers in its own families only: an address of the other one may be the node's, with a server of the
  // node behind it.
  const families = new Set(service.clusterIPs.map(familyOf))
  const addresses = addressesOf(service, (ip) => families.has(familyOf(ip)))
  for (const port of service.ports) {
    const protocol = port.protocol.toLowerCase()
    for (const [ip, of] of addresses) {
      const key = `${ip} . ${protocol} . ${port.port}`
      add(port, familyOf(ip), key, of, ip)
      const ranges = of.includes('loadBalancerIPs') ? allowed(service, ip, node) : []
      if (ranges.length > 0) restricted.set(key, ranges)
    }
    const { nodePort } = port
    if (nodePort !== undefined) for (const family of families) add(port, family, `${protocol} . ${nodePort}`, NODE_PORT)
  }
  const { healthCheckNodePort, createdAt } = service
  return {
    frontends,
    vips: service.clusterIPs,
    hairpins: [...hairpins],
    restricted,
    ...(createdAt !== undefined && { createdAt }),
    ...(healthCheckNodePort !== undefined && { health: { port: healthCheckNodePort, local: healthy.size } }),
  }
}

// Each address of a Service with the fields that have it. What is a ClusterIP is one, whatever other fields say.
function addressesOf(service: Service, isOwn: (ip: Ip) => boolean): Map<Ip, readonly AddressField[]> {
  const found = new Map<Ip, readonly AddressField[]>(service.clusterIPs.map((ip) => [ip, CLUSTER_IP]))
  for (const [of, ips] of [
    ['externalIPs', service.externalIPs],
    ['loadBalancerIPs', service.balancerIPs],
  ] as const)
    for (const ip of ips.filter(isOwn)) {
      const before = found.get(ip) ?? []
      if (before !== CLUSTER_IP && !before.includes(of)) found.set(ip, [...before, of])
    }
  return found
}
const CLUSTER_IP: readonly AddressField[] = ['clusterIPs']

// With policy Local, packets from outside come only to nodes with an endpoint. One that terminates still serves, and
// gets no new clients when it can be helped.
function isServedOutside(service: Service, { everyLocal, isAny }: Endpoints, isExternal: boolean): boolean {
  const isLocal = service.isExternalLocal || (!isExternal && service.isInternalLocal)
  return isLocal ? everyLocal.some(({ isReady }) => isReady || service.publishesNotReady) : isAny
}

function familyOf(ip: Ip): Family {
  return isSix(ip) ? 6 : 4
}

/**
 * The elements of a frontend: set or map, key, and value in a map. Slots of endpoints for clients from outside begin at
 * `LOCAL_SLOT`.
 */
export function* elementsOf(frontend: Frontend): Generator<readonly [set: string, key: string, value: string]> {
  const { kind, family, protocol, key, answer, cluster, local } = frontend
  if (answer === 'refuse') {
    yield [setName('none', kind, family), key, '']
    return
  }
  yield [setName('svc', kind, family), key, answer === 'drop' ? 'drop' : `goto ${chainName(answer)}`]
  if (answer === 'drop') return
  for (const [slots, first, token] of [
    [cluster, 0, CLUSTER_TOKEN],
    [local, LOCAL_SLOT, LOCAL_TOKEN],
  ] as const) {
    // The maps of slots are per protocol.
    const place = key.replace(`${protocol} . `, '')
    const tokens = answer.sticky === undefined ? undefined : tokensOf(slots, token)
    for (const [i, endpoint] of slots.entries()) {
      if (!tokens) yield [slotsName('eps', kind, family, protocol), `${place} . ${first + i}`, endpoint]
      else {
        yield [slotsName('tok', kind, family, protocol), `${place} . ${first + i}`, tokens[i] as string]
        yield [setName('sel', kind, family), `${key} . ${tokens[i]}`, endpoint]
      }
    }
  }
}

/** The first slot of endpoints for clients from outside. */
export const LOCAL_SLOT = 65_536
/**
 * The connection mark of the first packet to a Service with session affinity. It is 0x7e and 24 bits that stand for the
 * endpoint, or 0x7f for clients from outside. Postrouting clears it.
 */
export const [CLUSTER_TOKEN, LOCAL_TOKEN] = [0x7e00_0000, 0x7f00_0000] as const

/** The name of a set of all frontends of one kind and family: `svc4`, `portsvc6`. */
export function setName(what: 'svc' | 'sel' | 'aff' | 'none', kind: ChainShape['kind'], family: Family): string {
  return `${kind === 'vip' ? '' : 'port'}${what}${family}`
}

/** The name of a map from slots to endpoints (`eps`), or to tokens (`tok`): `eps4tcp`, `porteps6udp`. */
export function slotsName(what: 'eps' | 'tok', kind: ChainShape['kind'], family: Family, protocol: L4): string {
  return `${kind === 'vip' ? '' : 'port'}${what}${family}${protocol}`
}

/** The name of a chain: its shape. */
export function chainName({ kind, family, protocol, cluster, local, sticky, isMasked }: ChainShape): string {
  return [
    `${kind}${family}`,
    protocol,
    cluster,
    ...(local === undefined ? [] : [`l${local}`]),
    ...(sticky === undefined ? [] : [`s${sticky}`]),
    ...(isMasked ? ['m'] : []),
  ].join('_')
}

/** Whether two frontends need the same of the kernel. */
export function isSame(one: Frontend, other: Frontend): boolean {
  return Bun.deepEquals(one, other)
}

// Endpoints that stay keep their slot. New ones fill holes, then the last ones do: two elements per endpoint that goes.
function slotsOf(wanted: readonly string[], before: readonly string[] = []): string[] {
  const left = new Set(wanted)
  const slots: (string | undefined)[] = before.map((one) => (left.delete(one) ? one : undefined))
  const fresh = [...left].sort()
  for (const [i, one] of slots.entries()) if (one === undefined) slots[i] = fresh.shift()
  while (slots.length > 0 && slots.at(-1) === undefined) slots.pop()
  for (let i = 0; i < slots.length; i++) {
    if (slots[i] !== undefined) continue
    slots[i] = slots.pop()
    while (slots.length > 0 && slots.at(-1) === undefined) slots.pop()
  }
  return [...(slots as string[]), ...fresh]
}

// A token is the same after a restart: clients keep their endpoint. Two endpoints of one Service seldom have the same
// 24 bits.
function tokensOf(slots: readonly string[], base: number): string[] {
  const used = new Set<number>()
  return slots.map((endpoint) => {
    let bits = Number(Bun.hash.xxHash32(endpoint)) & 0xff_ffff
    while (used.has(bits)) bits = (bits + 1) & 0xff_ffff
    used.add(bits)
    return `0x${(base + bits).toString(16).padStart(8, '0')}`
  })
}

// Who may use an address of a load balancer, as kube-proxy has it: the ranges of that family. None, or one that has
// every address, allows all. A node that is allowed may have the address itself, and then asks from it.
function allowed({ sourceRanges }: Service, ip: Ip, { ips = [] }: NodeFacts): Cidr[] {
  const ranges = sourceRanges.filter((range) => isSix(range) === isSix(ip))
  if (ranges.some((range) => split(range).length === 0)) return []
  const isNodeAllowed = ips.some((own) => ranges.some((range) => contains(range, own)))
  return widest([...ranges, ...(isNodeAllowed ? [hostCidr(ip)] : [])])
}

// nft refuses overlapping elements of one set. In order of their first address, what contains a range comes before it.
// There may be tens of thousands.
function widest(ranges: readonly Cidr[]): Cidr[] {
  const sorted = [...new Set(ranges)]
    .map((range) => ({ range, first: bitsOf(range).bits, length: split(range).length }))
    .sort((a, b) => (a.first === b.first ? a.length - b.length : a.first < b.first ? -1 : 1))
  const kept: Cidr[] = []
  for (const { range } of sorted) {
    const last = kept.at(-1)
    if (last === undefined || !contains(last, split(range).ip)) kept.push(range)
  }
  return kept
}
