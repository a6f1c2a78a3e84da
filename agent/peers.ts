import { shown } from '../lib/errors.ts'
import type { Cidr, Ip } from '../lib/ip.ts'
import type { Resource, Route } from '../lib/state.ts'
import type { Facts, Wanted } from './backend.ts'
import type { Lease } from './lease.ts'
import { settleIds, throughNexthop } from './nexthops.ts'
import { within } from './scope.ts'
import { giveBack } from './tidy.ts'
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
  lease: Lease
}
// What all peers came to, and what one more has to be compared with. What only one peer can have, by device: a MAC behind one address, an address behind one MAC.
interface Sum extends Wanted {
  readonly peers: readonly Lease[]
  readonly holders: Holders
  readonly ids: ReadonlyMap<number, Resource>
}
type Holders = Map<string, Map<string, string>>

const FAMILIES = ['v4', 'v6'] as const
const NONE: readonly never[] = []

/** A function from peers to what they come to, by a function of one peer. It remembers: a peer whose lease says what it said before, while all else is the same too, gives the same objects, and one more is put behind them, so that ten thousand peers cost a step next to nothing. This node's own lease among them comes to nothing. */
export function eachPeer<C>(prepare: (context: Context<C>) => Reach): (peers: readonly Lease[], context: Context<C>) => Wanted {
  let known = new Map<string, Made>()
  let last: { readonly seen: string; readonly reach: Reach } | undefined
  let sum: Sum | undefined
  return (peers, context) => {
    const { self, ...rest } = context
    const seen = JSON.stringify([self.subnets, self.data, rest])
    if (last?.seen !== seen || known.size > 2 * peers.length + 1000) [known, sum] = [new Map(), undefined]
    if (last?.seen !== seen) last = { seen, reach: prepare(context) }
    const { reach } = last
    const make = (peer: Lease) => {
      const subnet = peer.subnets.v4 ?? peer.subnets.v6 ?? ''
      const before = known.get(subnet)
      // A lease that was only renewed says the same.
      const made = before && (before.lease === peer || said(before.lease) === said(peer)) ? before : reached(peer, context, reach)
      made.lease = peer
      known.set(subnet, made)
      return made
    }
    sum = (sum && grown(sum, peers, make)) ?? whole(peers, peers.map(make))
    const { resources, problems } = sum
    return { resources, problems }
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
  let resources: readonly Resource[] = NONE
  const problems: string[] = []
  for (const family of FAMILIES) {
    const subnet = lease.subnets[family]
    const own = context.self.subnets[family]
    // A family that this node does not have has no device either; a lease of our own subnet is our own.
    if (subnet === undefined || own === undefined || subnet === own) continue
    const made = refused(lease, family, context) ?? reach({ lease, family, subnet, ip: lease.ips[family] as Ip })
    if (typeof made === 'string') problems.push(`Cannot reach ${called(lease, subnet)}: ${made}`)
    else resources = resources === NONE ? made : [...resources, ...made]
  }
  return { lease, resources, problems: problems.length === 0 ? NONE : problems }
}

function refused<C>({ backend, ips }: Lease, family: 'v4' | 'v6', { type, uplink }: Context<C>): string | undefined {
  const ip = ips[family]
  if (backend !== type) return `it uses backend ${shown(backend)}, this node ${type}`
  if (ip === undefined) return `it announces no IPv${family === 'v4' ? 4 : 6} address`
  return ip === uplink.tunnel[family] || ip === uplink.advertise[family] ? `it announces ${ip}, this node's own address` : undefined
}

function said({ subnets, ips, backend, data, node }: Lease): string {
  return JSON.stringify([subnets, ips, backend, data, node])
}

function whole(peers: readonly Lease[], made: readonly Made[]): Sum {
  const { kept, holders } = withoutRivals(made)
  const resources: Resource[] = []
  const problems: string[] = []
  for (const one of kept) {
    for (const resource of one.resources) resources.push(resource)
    for (const problem of one.problems) problems.push(problem)
  }
  const settled = settleIds(resources)
  const ids = new Map<number, Resource>()
  for (const one of settled) if (one.kind === 'nexthop') ids.set(one.id, one)
  giveBack(made.length)
  return { peers, resources: settled, problems, holders, ids }
}

// Undefined when it is not so that there are just more, or when one of those has what another one has.
function grown(sum: Sum, peers: readonly Lease[], make: (peer: Lease) => Made): Sum | undefined {
  const { holders } = sum
  const most = Math.min(peers.length, sum.peers.length)
  let [start, end] = [0, 0]
  while (start < most && peers[start] === sum.peers[start]) start++
  while (end < most - start && peers[peers.length - 1 - end] === sum.peers[sum.peers.length - 1 - end]) end++
  if (start + end < sum.peers.length) return undefined
  const more = peers.slice(start, peers.length - end).map(make)
  if (more.length === 0) return { ...sum, peers }
  const resources = more.flatMap((one) => one.resources)
  if (resources.some((one) => one.kind === 'nexthop' && sum.ids.has(one.id)) || settleIds(resources) !== resources) return undefined
  if (!resources.every((one) => claim(one, holders))) return undefined
  const ids = sum.ids as Map<number, Resource>
  for (const one of resources) if (one.kind === 'nexthop') ids.set(one.id, one)
  return { peers, resources: sum.resources.concat(resources), problems: [...sum.problems, ...more.flatMap((one) => one.problems)], holders, ids }
}

interface Claim {
  readonly dev: string
  readonly what: string
  readonly by: string
}

function claimOf(resource: Resource): Claim | undefined {
  if (resource.kind === 'tunnel') return { dev: resource.dev, what: resource.mac, by: resource.dst }
  if (resource.kind === 'neigh') return { dev: resource.dev, what: resource.ip, by: resource.mac }
  return undefined
}

// False when another has it; the lower of two keeps it, so that the order of the leases does not matter.
function claim(resource: Resource, holders: Holders): boolean {
  const wanted = claimOf(resource)
  if (!wanted) return true
  const { dev, what, by } = wanted
  const held = holders.get(dev) ?? new Map<string, string>()
  holders.set(dev, held)
  const holder = held.get(what)
  if (holder === undefined || by < holder) held.set(what, by)
  return holder === undefined || holder === by
}

// Leases of one node, an old subnet's and a new one's, do not differ.
function withoutRivals(made: readonly Made[]): { kept: readonly Made[]; holders: Holders } {
  const holders: Holders = new Map()
  let rivals = 0
  for (const { resources } of made) for (const one of resources) if (!claim(one, holders)) rivals++
  if (rivals === 0) return { kept: made, holders }
  const holderOf = ({ dev, what }: Claim) => holders.get(dev)?.get(what)
  const kept = made.map((one) => {
    const lost = one.resources.find((resource) => {
      const wanted = claimOf(resource)
      return wanted && holderOf(wanted) !== wanted.by
    })
    const wanted = lost && claimOf(lost)
    if (!wanted) return one
    const { v4, v6 } = one.lease.subnets
    const title = lost.kind === 'tunnel' ? `the MAC ${wanted.what}` : `a subnet that begins at ${wanted.what}`
    return { lease: one.lease, resources: [], problems: [`Cannot reach ${called(one.lease, [v4, v6].filter(Boolean).join(' and '))}: it announces ${title}, as the node with ${holderOf(wanted)} does`] }
  })
  return { kept, holders }
}
