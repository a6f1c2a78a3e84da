import type { Route } from '../../lib/state/kinds/route.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { face } from '../kernel/diff.ts'
import { within } from '../kernel/ownership.ts'
import { both } from '../lease/families.ts'
import { type Both, encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import type { Wanted } from './backend.ts'

// A link between two nodes may carry smaller packets than the nodes promise to pods, and nobody tells the pods. The
// probes find the size (`probes.ts`). The routes to the peer get it as `mtu`: the node then tells the pods by ICMP.

/** What probes know of the size of packets to a peer, in one family. */
export interface Path {
  /** The largest packet that arrives, in bytes. Absent unless packets of full size are known not to arrive. */
  readonly largest?: number
  /** So many packets of full size have arrived in a row, at most ten. */
  readonly arrived: number
}

/** What is remembered of a path. */
export interface Kept {
  /** The MTU of the routes, in bytes. Absent: they have none of their own. */
  readonly mtu?: number
  /** The routes had one before, and lost it. */
  readonly isAgain?: true
}

/** The smallest packet that each link carries in one piece (RFC 791, RFC 8200). The MTU of a route is never below. */
const SMALLEST: Required<Both<number>> = { v4: 576, v6: 1280 }
/** After so many packets of full size in a row a path is whole, and after so many when it was whole before. */
const [FEW, MORE] = [3, 10]
const FAMILIES = ['v4', 'v6'] as const

/**
 * Decides about the MTU of the routes to a peer, in one family. A measured size counts at once. It is taken back when
 * packets of full size arrive several times in a row. What probes cannot tell leaves everything as it is. Pure.
 */
export function decideMtu(before: Kept | undefined, path: Path | undefined, family: 'v4' | 'v6'): Kept | undefined {
  const again = before?.isAgain && { isAgain: before.isAgain }
  if (path?.largest !== undefined) return { mtu: Math.max(path.largest, SMALLEST[family]), ...again }
  const isWhole = (path?.arrived ?? 0) >= (again ? MORE : FEW)
  return before?.mtu !== undefined && isWhole ? { isAgain: true } : before
}

/** The MTUs of the routes to all peers, as the probes have found them. */
export class PathMtus {
  readonly #kept = new Map<SubnetKey, Both<Kept>>()

  /** The peers whose routes have an MTU of their own, with its bytes by family. */
  get all(): ReadonlyMap<SubnetKey, Both<number>> {
    const found = new Map<SubnetKey, Both<number>>()
    for (const [key, { v4, v6 }] of this.#kept) {
      const mtus = { ...(v4?.mtu !== undefined && { v4: v4.mtu }), ...(v6?.mtu !== undefined && { v6: v6.mtu }) }
      if (both(mtus).length > 0) found.set(key, mtus)
    }
    return found
  }

  /** Takes what the probes know of a peer. True when the MTU of its routes changes. */
  note(key: SubnetKey, paths: Both<Path>): boolean {
    const before = this.#kept.get(key) ?? {}
    const now: { v4?: Kept; v6?: Kept } = {}
    for (const family of FAMILIES) {
      const kept = decideMtu(before[family], paths[family], family)
      if (kept) now[family] = kept
    }
    this.#kept.set(key, now)
    return FAMILIES.some((family) => now[family]?.mtu !== before[family]?.mtu)
  }

  /** Forgets all other peers. */
  keepOnly(keys: ReadonlySet<SubnetKey>): void {
    for (const key of this.#kept.keys()) if (!keys.has(key)) this.#kept.delete(key)
  }
}

/** What a backend wants, with the MTUs of paths. `mtus` are those that routes have. */
export interface WithMtus extends Wanted {
  readonly mtus: ReadonlyMap<SubnetKey, Both<number>>
}

/**
 * Gives the routes to these peers their MTU. Where one route leads to the subnets of many nodes, as that of wireguard,
 * the peer gets a closer one. `most` is the MTU of pods in bytes: a path of that size needs nothing. Pure.
 */
export function withPathMtus(
  wanted: Wanted,
  leases: readonly Lease[],
  found: ReadonlyMap<SubnetKey, Both<number>>,
  most: number,
): WithMtus {
  const sizes = new Map<Cidr, { readonly key: SubnetKey; readonly family: 'v4' | 'v6'; readonly mtu: number }>()
  for (const { subnets } of found.size === 0 ? [] : leases) {
    const key = encodeKey(subnets)
    for (const family of FAMILIES) {
      const [subnet, mtu] = [subnets[family], found.get(key)?.[family]]
      if (subnet !== undefined && mtu !== undefined && mtu < most) sizes.set(subnet, { key, family, mtu })
    }
  }
  if (sizes.size === 0) return { ...wanted, mtus: new Map() }
  const mtus = new Map<SubnetKey, Both<number>>()
  const given = (subnet: Cidr) => {
    const { key, family, mtu } = sizes.get(subnet) as NonNullable<ReturnType<typeof sizes.get>>
    sizes.delete(subnet)
    mtus.set(key, { ...mtus.get(key), [family]: mtu })
    return { key, mtu }
  }
  const resources = wanted.resources.map(
    (one): Resource =>
      one.kind === 'route' && isWay(one) && sizes.has(one.dst) ? narrowed(one, given(one.dst).mtu) : one,
  )
  const closer = new Map<string, SubnetKey>()
  for (const subnet of [...sizes.keys()]) {
    const wide = resources.find((one): one is Route => one.kind === 'route' && isWay(one) && holds(one, subnet))
    if (!wide) continue
    const { key, mtu } = given(subnet)
    const route = { ...wide, dst: subnet, mtu }
    closer.set(face(route).key, key)
    resources.push(route)
  }
  return {
    ...wanted,
    resources,
    mtus,
    ownersOf: (keys) => new Map([...wanted.ownersOf(keys), ...[...closer].filter(([key]) => keys.has(key))]),
  }
}

function isWay({ blackhole, unreachable }: Route): boolean {
  return !blackhole && !unreachable
}

// Routes with a gateway lead to one node each.
function holds({ dst, via }: Route, subnet: Cidr): boolean {
  return via.length === 0 && isSix(dst) === isSix(subnet) && within([dst])(subnet)
}

// Without its nexthop object. The kernel gives an IPv4 route without an MTU that of any other route through the same
// object (fib_find_info_nh).
function narrowed({ nhid: _, ...route }: Route, mtu: number): Route {
  return { ...route, mtu }
}
