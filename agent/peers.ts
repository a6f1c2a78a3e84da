import { shown } from '../lib/errors.ts'
import type { Cidr, Ip } from '../lib/ip.ts'
import type { Resource, Route } from '../lib/state.ts'
import type { Facts, Wanted } from './backend.ts'
import type { Lease } from './lease.ts'
import { settleIds, throughNexthop } from './nexthops.ts'
import { within } from './scope.ts'
import type { Uplink } from './uplink.ts'

/** One peer of one family, with an address that is not this node's own. */
export interface Peer {
  readonly lease: Lease
  readonly family: 'v4' | 'v6'
  readonly subnet: Cidr
  readonly ip: Ip
}
/** What a backend knows of this node when it looks at a peer. */
export interface Context<C> {
  readonly type: string
  readonly self: Lease
  readonly uplink: Uplink
  readonly conf: C
  readonly facts: Facts
}

/** What one peer comes to: the resources that reach it, or a clause that says why it cannot be reached. */
export type Reach = (peer: Peer) => readonly Resource[] | string
interface Made extends Wanted {
  readonly claims: readonly Claim[]
}
// What only one peer can have: a MAC behind one address, an address behind one MAC.
interface Claim {
  readonly what: string
  readonly by: string
  readonly title: string
}

/** A function from peers to what they come to, by a function of one peer. It remembers: a peer whose lease says what it said before, while all else is the same too, gives the same objects, so that ten thousand peers cost a step next to nothing. */
export function eachPeer<C>(prepare: (context: Context<C>) => Reach): (peers: readonly Lease[], context: Context<C>) => Wanted {
  let byLease = new WeakMap<Lease, Made>()
  let bySaid = new Map<string, Made>()
  let last: { readonly seen: string; readonly reach: Reach } | undefined
  return (peers, context) => {
    const { self, ...rest } = context
    const seen = JSON.stringify([self.subnets, self.data, rest])
    if (last?.seen !== seen || bySaid.size > 2 * peers.length + 1000) [byLease, bySaid] = [new WeakMap(), new Map()]
    if (last?.seen !== seen) last = { seen, reach: prepare(context) }
    const { reach } = last
    const made = peers.map((peer) => {
      const known = byLease.get(peer)
      if (known) return known
      // A lease that was only renewed says the same.
      const said = JSON.stringify([peer.subnets, peer.ips, peer.backend, peer.data, peer.node])
      const found = bySaid.get(said) ?? reached(peer, context, reach)
      byLease.set(peer, found)
      bySaid.set(said, found)
      return found
    })
    const resources: Resource[] = []
    const problems: string[] = []
    for (const one of withoutRivals(peers, made)) {
      for (const resource of one.resources) resources.push(resource)
      for (const problem of one.problems) problems.push(problem)
    }
    return { resources: settleIds(resources), problems }
  }
}

/** A route of the agent's to a subnet: through a nexthop object where the kernel has them. */
export function routed(route: Route & { readonly via: readonly [Ip] }, { nexthops, instance }: Facts): readonly Resource[] {
  return nexthops ? throughNexthop(route, instance) : [route]
}

/** Whether an address is on a link of the node, with no router in between: the most specific route decides. */
export function onLink({ routes, name }: Uplink): (ip: Ip) => boolean {
  const tests = routes.map(({ dst, dev, gateway }) => ({ holds: within([dst]), direct: dev === name && !gateway }))
  return (ip) => tests.find(({ holds }) => holds(ip))?.direct ?? false
}

/** What to call a peer in a sentence: its subnets, and its name or addresses. */
export function called({ node, ips }: Lease, subnet: string): string {
  return `${subnet} of node ${node === undefined ? [ips.v4, ips.v6].filter(Boolean).join(' ') || 'without a name' : shown(node)}`
}

function reached<C>(lease: Lease, context: Context<C>, reach: Reach): Made {
  const resources: Resource[] = []
  const problems: string[] = []
  for (const family of ['v4', 'v6'] as const) {
    const subnet = lease.subnets[family]
    const own = context.self.subnets[family]
    // A family that this node does not have has no device either; a lease of our own subnet is our own.
    if (subnet === undefined || own === undefined || subnet === own) continue
    const made = refused(lease, family, context) ?? reach({ lease, family, subnet, ip: lease.ips[family] as Ip })
    if (typeof made === 'string') problems.push(`Cannot reach ${called(lease, subnet)}: ${made}`)
    else resources.push(...made)
  }
  return { resources, problems, claims: resources.flatMap((one) => claimOf(one) ?? []) }
}

function refused<C>({ backend, ips }: Lease, family: 'v4' | 'v6', { type, uplink }: Context<C>): string | undefined {
  const ip = ips[family]
  if (backend !== type) return `it uses backend ${shown(backend)}, this node ${type}`
  if (ip === undefined) return `it announces no IPv${family === 'v4' ? 4 : 6} address`
  return ip === uplink.tunnel[family] || ip === uplink.advertise[family] ? `it announces ${ip}, this node's own address` : undefined
}

function claimOf(resource: Resource): Claim | undefined {
  if (resource.kind === 'tunnel') return { what: `${resource.dev} ${resource.mac}`, by: resource.dst, title: `the MAC ${resource.mac}` }
  if (resource.kind === 'neigh') return { what: `${resource.dev} ${resource.ip}`, by: resource.mac, title: `a subnet that begins at ${resource.ip}` }
  return undefined
}

// The lower of two keeps it, so that the order of the leases does not matter. Leases of one node, an old subnet's and a new one's, do not differ.
function withoutRivals(peers: readonly Lease[], made: readonly Made[]): readonly Made[] {
  const holders = new Map<string, string>()
  let rivals = 0
  for (const { claims } of made)
    for (const { what, by } of claims) {
      const holder = holders.get(what)
      if (holder !== undefined && holder !== by) rivals++
      if (holder === undefined || by < holder) holders.set(what, by)
    }
  if (rivals === 0) return made
  return made.map((one, i) => {
    const lost = one.claims.find(({ what, by }) => holders.get(what) !== by)
    const { subnets } = peers[i] as Lease
    return lost ? { resources: [], problems: [`Cannot reach ${called(peers[i] as Lease, [subnets.v4, subnets.v6].filter(Boolean).join(' and '))}: it announces ${lost.title}, as the node with ${holders.get(lost.what)} does`], claims: [] } : one
  })
}
