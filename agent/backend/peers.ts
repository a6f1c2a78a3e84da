import type { Nexthop } from '../../lib/state/kinds/nexthop.ts'
import type { Route } from '../../lib/state/kinds/route.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseCidr, parseIp } from '../../lib/text/ip.ts'
import { face } from '../kernel/diff.ts'
import { settleIds, throughNexthop } from '../kernel/nexthops.ts'
import { within } from '../kernel/ownership.ts'
import { both } from '../lease/families.ts'
import { encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import { giveBack } from '../node/garbage.ts'
import type { Facts, Wanted } from './backend.ts'
import { judgePlaces, type Span, Subnets, spanOf } from './subnets.ts'
import type { Uplink } from './uplink.ts'

/** One peer in one family, with an address that differs from this node's addresses. */
export interface Peer {
  readonly lease: Lease
  readonly family: 'v4' | 'v6'
  readonly subnet: Cidr
  readonly ip: Ip
}
/** The facts about this node that a backend uses for a peer. */
export interface Context<C> {
  readonly type: string
  /** The `BackendType` of the peers' leases, where it is not `type`. */
  readonly leaseType?: string
  readonly self: Lease
  readonly uplink: Uplink
  readonly conf: C
  readonly facts: Facts
}

/** Gives the reason for refusing a peer's subnet, by its place in the address space. */
type Judge = ReturnType<typeof judgePlaces>
/** The result for one peer: the resources that reach it, or a clause that says why it cannot be reached. */
export type Reach = (peer: Peer) => readonly Resource[] | string
// The result for one lease.
interface Made {
  readonly key: SubnetKey
  lease: Lease
  readonly resources: readonly Resource[]
  /** The subnets of the lease that have no misplacement. Other leases may still overlap them. */
  readonly spans: readonly Span<Lease>[]
  /** The reason why the peer cannot be reached. */
  readonly problem?: string
}
// The result for all leases, in order. `isPlain` means that no lease affects another one. Then one lease can be
// replaced without a look at the others.
interface Sum {
  readonly peers: readonly Lease[]
  readonly made: readonly Made[]
  readonly resources: readonly Resource[]
  readonly problems: ReadonlyMap<SubnetKey, string>
  readonly isPlain: boolean
  readonly subnets: Subnets<Lease>
  readonly holders: Holders
  readonly ids: Ids
}
// The resources that only one node can have, per device: a MAC leads to one address, and an address to one MAC. `count`
// is the number of leases of one node that share the entry.
type Holders = Map<string, Map<string, { by: string; count: number }>>
type Ids = Map<number, { readonly gateway: string; count: number }>

const FAMILIES = ['v4', 'v6'] as const
const MOST_ON_LINK = 100
const NONE: readonly never[] = []

/**
 * Makes a function of all peers from a function of one peer. It caches: an unchanged lease under unchanged conditions
 * gives the same objects. A change of one lease among ten thousand therefore costs only as much as that lease. This
 * node's own lease and refused leases give no resources. Peers must come oldest first. When two leases share an
 * address, the older lease keeps it.
 */
export function eachPeer<C>(
  prepare: (context: Context<C>) => Reach,
): (peers: readonly Lease[], context: Context<C>) => Wanted {
  let known = new Map<SubnetKey, Made>()
  let last: { readonly seen: string; readonly reach: Reach; readonly judge: Judge } | undefined
  let sum: Sum | undefined
  return (peers, context) => {
    const { self, ...rest } = context
    const seen = JSON.stringify([self.subnets, self.data, rest])
    if (last?.seen !== seen || known.size > 2 * peers.length + 1000) [known, sum] = [new Map(), undefined]
    if (last?.seen !== seen) {
      const { facts, uplink } = context
      const judge = judgePlaces({ own: self.subnets, networks: facts.networks, uplink })
      last = { seen, reach: prepare(context), judge }
    }
    const { reach, judge } = last
    const make = (peer: Lease) => {
      const key = encodeKey(peer.subnets)
      const before = known.get(key)
      // A lease that was only renewed has the same content.
      const isSame = before && (before.lease === peer || contentOf(before.lease) === contentOf(peer))
      const made = isSame ? before : reached(key, peer, context, reach, judge)
      made.lease = peer
      known.set(key, made)
      return made
    }
    const isFirst = sum === undefined
    sum = (sum && changed(sum, peers, make)) ?? whole(peers, peers.map(make))
    if (isFirst) giveBack(peers.length)
    const { made, resources, problems } = sum
    return { resources, problems, ownersOf: (keys) => ownersOf(made, keys) }
  }
}

/** The agent's route to a subnet. It goes through a nexthop object if the kernel supports these objects. */
export function routed(
  route: Route & { readonly via: readonly [Ip] },
  { nexthops, instance }: Facts,
): readonly Resource[] {
  return nexthops ? throughNexthop(route, instance) : [route]
}

/** Whether an address is on the uplink's link without a router in between. The most specific route decides. */
export function onLink({ routes, name }: Uplink): (ip: Ip) => boolean {
  const tests = routes.map(({ dst, dev, gateway }) => ({ holds: within([dst]), direct: dev === name && !gateway }))
  return (ip) => tests.find(({ holds }) => holds(ip))?.direct ?? false
}

/**
 * The networks that a node's uplink reaches without a router. A node that takes plain packets from peers announces them
 * with its lease (`OnLink`). A node with a /32 address has none.
 */
export function networksOnLink({ routes, name }: Uplink, family: 'v4' | 'v6'): Cidr[] {
  const own = routes.filter(({ dst, dev, gateway }) => dev === name && !gateway && isSix(dst) === (family === 'v6'))
  return own.map(({ dst }) => dst).sort()
}

/**
 * The address from which a node sends tunnelled packets, for its lease (`Source`). Empty when peers know it already
 * because the node announces the same address.
 */
export function sourceOf({ tunnel, advertise }: Uplink, family: 'v4' | 'v6'): { readonly Source?: Ip } {
  const own = tunnel[family]
  return own === undefined || own === advertise[family] ? {} : { Source: own }
}

/**
 * The addresses from which the node of a lease sends tunnelled packets: those that it announces, and its `Source`. What
 * is no address is left out.
 */
export function sourcesOf({ ips, data }: Pick<Lease, 'ips' | 'data'>): Ip[] {
  const sources = FAMILIES.flatMap((family) => {
    const raw = data[family]
    const found = typeof raw === 'object' && raw !== null && 'Source' in raw ? raw.Source : undefined
    try {
      return found === undefined ? [] : [parseIp(found)]
    } catch {
      return []
    }
  })
  return [...both(ips), ...sources]
}

/** Parses the networks that a node announces as `OnLink`. Undefined when it names none. Throws ValueError. */
export function readOnLink(data: unknown, at: string): readonly Cidr[] | undefined {
  if (typeof data !== 'object' || data === null || !('OnLink' in data)) return undefined
  const { OnLink } = data
  try {
    if (!Array.isArray(OnLink) || OnLink.length > MOST_ON_LINK) throw new ValueError('want a list of networks')
    return OnLink.map((one) => parseCidr(one))
  } catch (cause) {
    throw new ValueError(`Cannot read ${at}.OnLink ${shown(OnLink)}: ${(cause as Error).message}`, { cause })
  }
}

/** The networks that a peer announces as `OnLink`, undefined when it names none, or why they cannot be read. */
export function onLinkOf({ lease, family }: Peer): readonly Cidr[] | undefined | string {
  try {
    return readOnLink(lease.data[family], family === 'v4' ? 'BackendData' : 'BackendV6Data')
  } catch (cause) {
    return (cause as Error).message
  }
}

/**
 * Whether packets go to a peer without the tunnel: neither node has a router on its way to the other. Both nodes decide
 * alike, because a node drops plain packets that it would answer by a tunnel (rp_filter). flannel announces no networks
 * and decides by its own routes alone. `networks` are those that the peer announces.
 */
export function isDirect(uplink: Uplink): (peer: Peer, networks: readonly Cidr[] | undefined) => boolean {
  const isOnLink = onLink(uplink)
  return ({ ip, family }, networks) => {
    const own = uplink.advertise[family]
    return isOnLink(ip) && (networks === undefined || (own !== undefined && within(networks)(own)))
  }
}

/** The name of a peer in a sentence: its subnets, and its node name or addresses. */
export function called({ node, ips, subnets }: Lease): string {
  const name = node === undefined ? both(ips).join(' ') || 'without a name' : shown(node)
  return `${both(subnets).join(' ')} of node ${name}`
}

function reached<C>(key: SubnetKey, lease: Lease, context: Context<C>, reach: Reach, judge: Judge): Made {
  let resources: readonly Resource[] = NONE
  const problems = new Set<string>()
  const spans: Span<Lease>[] = []
  for (const family of FAMILIES) {
    const subnet = lease.subnets[family]
    const own = context.self.subnets[family]
    // A family that this node lacks has no device. A lease of this node's own subnet is this node's own lease.
    if (subnet === undefined || own === undefined || subnet === own) continue
    const ip = lease.ips[family] as Ip
    const misplaced = judge(subnet, lease.ips[family])
    if (misplaced === undefined) spans.push(spanOf(subnet, lease))
    const made = misplaced ?? refused(lease, family, context) ?? reach({ lease, family, subnet, ip })
    if (typeof made === 'string') problems.add(made)
    else resources = resources === NONE ? made : [...resources, ...made]
  }
  return { key, lease, resources, spans, ...(problems.size === 0 ? {} : { problem: [...problems].join('; ') }) }
}

function refused<C>({ backend, ips }: Lease, family: 'v4' | 'v6', context: Context<C>): string | undefined {
  const { type, leaseType = type, uplink } = context
  const ip = ips[family]
  if (backend !== leaseType) {
    const theirs = backend === '' ? 'it announces no backend, as udp does' : `it uses backend ${shown(backend)}`
    return `${theirs}, this node ${type}`
  }
  if (ip === undefined) return `it announces no IPv${family === 'v4' ? 4 : 6} address`
  const isOwn = ip === uplink.tunnel[family] || ip === uplink.advertise[family]
  return isOwn ? `it announces ${ip}, this node's own address` : undefined
}

function contentOf({ subnets, ips, backend, data, node }: Lease): string {
  return JSON.stringify([subnets, ips, backend, data, node])
}

function whole(peers: readonly Lease[], all: readonly Made[]): Sum {
  const { kept: apart, subnets } = withoutOverlaps(all)
  const { kept, holders } = withoutRivals(apart)
  const resources: Resource[] = []
  const problems = new Map<SubnetKey, string>()
  for (const one of kept) {
    for (const resource of one.resources) resources.push(resource)
    if (one.problem !== undefined) problems.set(one.key, one.problem)
  }
  const settled = settleIds(resources)
  const made = settled === resources ? kept : dealt(kept, settled)
  const ids: Ids = new Map()
  for (const one of settled) if (one.kind === 'nexthop') take(ids, one)
  return { peers, made, resources: settled, problems, isPlain: made === all, subnets, holders, ids }
}

// The same leases with the moved resources. `resources` is in the order of the leases.
function dealt(made: readonly Made[], resources: readonly Resource[]): readonly Made[] {
  let at = 0
  return made.map((one) => {
    at += one.resources.length
    return { ...one, resources: resources.slice(at - one.resources.length, at) }
  })
}

function ownersOf(made: readonly Made[], keys: ReadonlySet<string>): ReadonlyMap<string, SubnetKey> {
  const owners = new Map<string, SubnetKey>()
  if (keys.size === 0) return owners
  for (const one of made)
    for (const resource of one.resources) {
      const { key } = face(resource)
      if (keys.has(key)) owners.set(key, one.key)
    }
  return owners
}

// When more leases than this change at once, all results are computed again.
const MANY = 1000

// Recomputes only the leases between the common beginning and the common end of both lists. Undefined when a lease
// shares, or shared, an object with another lease.
function changed(sum: Sum, peers: readonly Lease[], make: (peer: Lease) => Made): Sum | undefined {
  const most = Math.min(peers.length, sum.peers.length)
  let [start, end] = [0, 0]
  while (start < most && peers[start] === sum.peers[start]) start++
  while (end < most - start && peers[peers.length - 1 - end] === sum.peers[sum.peers.length - 1 - end]) end++
  if (start === peers.length && start === sum.peers.length) return sum
  const gone = sum.made.slice(start, sum.made.length - end)
  if (!sum.isPlain || gone.length > MANY) return undefined
  const more = peers.slice(start, peers.length - end).map(make)
  if (gone.length === more.length && gone.every((one, i) => one === more[i])) return { ...sum, peers }
  for (const one of gone) for (const span of one.spans) sum.subnets.remove(span)
  for (const one of gone) for (const resource of one.resources) release(resource, sum)
  for (const one of more) for (const span of one.spans) if (!sum.subnets.add(span)) return undefined
  for (const one of more)
    for (const resource of one.resources)
      if (!claim(resource, sum.holders) || (resource.kind === 'nexthop' && !take(sum.ids, resource))) return undefined
  const [at, count] = [lengthOf(sum.made, 0, start), lengthOf(sum.made, start, sum.made.length - end)]
  const resources = sum.resources.slice(0, at).concat(
    more.flatMap((one) => one.resources),
    sum.resources.slice(at + count),
  )
  const made = sum.made.slice(0, start).concat(more, sum.made.slice(sum.made.length - end))
  return { ...sum, peers, made, resources, problems: withProblems(sum.problems, gone, more) }
}

function lengthOf(made: readonly Made[], from: number, to: number): number {
  let count = 0
  for (let i = from; i < to; i++) count += (made[i] as Made).resources.length
  return count
}

function withProblems(problems: Sum['problems'], gone: readonly Made[], more: readonly Made[]): Sum['problems'] {
  if (![...gone, ...more].some(({ problem }) => problem !== undefined)) return problems
  const now = new Map(problems)
  for (const { key } of gone) now.delete(key)
  for (const { key, problem } of more) if (problem !== undefined) now.set(key, problem)
  return now
}

interface Claim {
  readonly dev: string
  readonly what: string
  readonly by: string
}

function claimOf(resource: Resource): Claim | undefined {
  if (resource.kind === 'tunnel') return { dev: resource.dev, what: resource.mac, by: resource.dst }
  if (resource.kind === 'neigh') return { dev: resource.dev, what: resource.ip, by: resource.mac }
  if (resource.kind === 'wgpeer') return { dev: resource.dev, what: resource.publicKey, by: resource.endpoint ?? '' }
  return undefined
}

// False when another holder has the object. The lower text wins, so that the order of the leases does not matter.
function claim(resource: Resource, holders: Holders): boolean {
  const wanted = claimOf(resource)
  if (!wanted) return true
  const { dev, what, by } = wanted
  const held = holders.get(dev) ?? new Map<string, { by: string; count: number }>()
  holders.set(dev, held)
  const holder = held.get(what)
  if (holder?.by === by) holder.count++
  else if (holder === undefined || by < holder.by) held.set(what, { by, count: 1 })
  return holder === undefined || holder.by === by
}

// False when another gateway has the id.
function take(ids: Ids, { id, via, dev }: Nexthop): boolean {
  const [gateway, holder] = [`${via} ${dev}`, ids.get(id)]
  if (holder === undefined) ids.set(id, { gateway, count: 1 })
  else if (holder.gateway === gateway) holder.count++
  return holder === undefined || holder.gateway === gateway
}

function release(resource: Resource, { holders, ids }: Sum): void {
  const wanted = claimOf(resource)
  const held = wanted && holders.get(wanted.dev)
  const holder = held?.get(wanted?.what ?? '')
  if (wanted && holder && --holder.count === 0) held?.delete(wanted.what)
  const id = resource.kind === 'nexthop' ? ids.get(resource.id) : undefined
  if (resource.kind === 'nexthop' && id && --id.count === 0) ids.delete(resource.id)
}

// Two leases of one node may overlap, for example an IPv4 lease and a lease of both families. Both lead to one node.
function withoutOverlaps(made: readonly Made[]): { kept: readonly Made[]; subnets: Subnets<Lease> } {
  const subnets = new Subnets<Lease>()
  let overlaps = 0
  const kept = made.map((one): Made => {
    const rivals = one.spans.flatMap((span) => subnets.rival(span) ?? [])
    overlaps += rivals.length
    const other = rivals.find(({ owner }) => !isSameNode(one.lease, owner))
    if (other) return { ...one, resources: [], problem: `it overlaps the older lease ${called(other.owner)}` }
    for (const span of one.spans) subnets.add(span)
    return one
  })
  return { kept: overlaps === 0 ? made : kept, subnets }
}

function isSameNode(one: Lease, other: Lease): boolean {
  if (one.node !== undefined && other.node !== undefined) return one.node === other.node
  return FAMILIES.every((family) => {
    const [a, b] = [one.ips[family], other.ips[family]]
    return a === undefined || b === undefined || a === b
  })
}

// Removes leases that lose an object to another node. Leases of one node do not conflict, for example those of an old
// and a new subnet.
function withoutRivals(made: readonly Made[]): { kept: readonly Made[]; holders: Holders } {
  const holders: Holders = new Map()
  let rivals = 0
  for (const { resources } of made) for (const one of resources) if (!claim(one, holders)) rivals++
  if (rivals === 0) return { kept: made, holders }
  const holderOf = ({ dev, what }: Claim) => holders.get(dev)?.get(what)?.by
  const kept = made.map((one): Made => {
    const lost = one.resources.find((resource) => {
      const wanted = claimOf(resource)
      return wanted && holderOf(wanted) !== wanted.by
    })
    const wanted = lost && claimOf(lost)
    if (!wanted) return one
    const title = titleOf(lost, wanted.what)
    return { ...one, resources: [], problem: `it announces ${title}, as the node with ${holderOf(wanted)} does` }
  })
  return { kept, holders }
}

function titleOf({ kind }: Resource, what: string): string {
  if (kind === 'wgpeer') return `the key ${what}`
  return kind === 'tunnel' ? `the MAC ${what}` : `a subnet that begins at ${what}`
}
