import { bitsOf, type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import type { Both } from '../lease/lease.ts'
import { directRoutes, type Uplink } from './uplink.ts'

/** The addresses of a subnet as numbers, with their owner. */
export interface Span<Owner> {
  readonly family: 4 | 6
  readonly first: bigint
  readonly last: bigint
  readonly owner: Owner
}

/** The span of a subnet. */
export function spanOf<Owner>(subnet: Cidr, owner: Owner): Span<Owner> {
  const { family, first, last } = split(subnet)
  return { family, first, last, owner }
}

/** A set of subnets that share no address. */
export class Subnets<Owner> {
  readonly #spans: Record<4 | 6, Span<Owner>[]> = { 4: [], 6: [] }

  /** The first subnet that shares an address with a span. */
  rival(span: Span<Owner>): Span<Owner> | undefined {
    const spans = this.#spans[span.family]
    const at = this.#after(span)
    return [spans[at - 1], spans[at]].find((other) => other && meet(other, span))
  }

  /** Adds a span. Returns false and adds nothing when the span has a rival. */
  add(span: Span<Owner>): boolean {
    if (this.rival(span)) return false
    this.#spans[span.family].splice(this.#after(span), 0, span)
    return true
  }

  /** Removes a span that was added. */
  remove(span: Span<Owner>): void {
    const spans = this.#spans[span.family]
    const at = this.#after(span) - 1
    if (spans[at]?.first === span.first) spans.splice(at, 1)
  }

  // The index of the first span that begins after this one.
  #after({ family, first }: Span<Owner>): number {
    const spans = this.#spans[family]
    let [low, high] = [0, spans.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((spans[middle] as Span<Owner>).first > first) high = middle
      else low = middle + 1
    }
    return low
  }
}

/** The addresses that a peer's subnet must not overlap, and the networks that it must lie in. */
export interface TakenAddresses {
  /** The subnets of this node. */
  readonly own: Both<Cidr>
  /** The networks of the pods. */
  readonly networks: readonly Cidr[]
  readonly uplink: Pick<Uplink, 'name' | 'tunnel' | 'advertise' | 'routes'>
}

/**
 * Makes a test for peers' subnets. It gives a clause that says why a subnet is refused, or undefined. `ip` is the
 * address that its node announces.
 */
export function judgePlaces(places: TakenAddresses): (subnet: Cidr, ip: Ip | undefined) => string | undefined {
  const { own, networks, uplink } = places
  const pools = networks.map((network) => spanOf(network, network))
  const mine = [own.v4, own.v6].flatMap((one) => (one === undefined ? [] : [spanOf(one, one)]))
  const { tunnel, advertise } = uplink
  const ips = new Set([tunnel.v4, tunnel.v6, advertise.v4, advertise.v6].filter((one) => one !== undefined))
  const spanAt = (ip: Ip) => spanOf(`${ip}/${bitsOf(ip).family === 4 ? 32 : 128}` as Cidr, ip)
  const addresses = [...ips].map(spanAt)
  const links = directRoutes(uplink).map((dst) => spanOf(dst, dst))
  return (subnet, ip) => {
    const span = spanOf(subnet, subnet)
    const taken = mine.find((one) => meet(one, span))
    if (taken) return `its subnet ${subnet} overlaps ${taken.owner}, this node's own`
    const address = addresses.find((one) => holds(span, one))
    if (address) return `its subnet ${subnet} holds ${address.owner}, this node's address on ${uplink.name}`
    // A route to exactly this subnet is not the network of the uplink. The kernel refuses a second route to it, and
    // that failure is reported separately.
    const link = links.find((one) => one.owner !== subnet && holds(span, one))
    if (link) return `its subnet ${subnet} covers ${link.owner}, the network of ${uplink.name}`
    if (ip !== undefined && holds(span, spanOf(`${ip}/${span.family === 4 ? 32 : 128}` as Cidr, ip)))
      return `its subnet ${subnet} holds ${ip}, the address that it announces`
    const usual = pools.filter(({ family }) => family === span.family)
    if (usual.some((one) => holds(one, span))) return undefined
    const network = usual.map(({ owner }) => owner).join(' and ')
    const want = 'want a subnet of it, or "PeerNetworks" of net-conf.json to name its network'
    return `its subnet ${subnet} is outside the network ${network}; ${want}`
  }
}

function meet(one: Span<unknown>, other: Span<unknown>): boolean {
  return one.family === other.family && one.first <= other.last && other.first <= one.last
}

function holds(outer: Span<unknown>, inner: Span<unknown>): boolean {
  return outer.family === inner.family && outer.first <= inner.first && outer.last >= inner.last
}
