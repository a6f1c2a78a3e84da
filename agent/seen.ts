import type { KindCount, Peer, Status } from './status.ts'

/** What to call a peer: flannel's leases carry no name, so that the address has to do. */
export function nameOf({ node, ips, subnets }: Pick<Peer, 'node' | 'ips' | 'subnets'>): string {
  return node ?? ips.v4 ?? ips.v6 ?? subnets.v4 ?? subnets.v6 ?? 'a node without a name'
}

/** The peers whose pods cannot be reached. */
export function unreachable(peers: readonly Peer[]): Peer[] {
  return peers.filter(({ problem }) => problem !== undefined)
}

const collator = new Intl.Collator('en', { numeric: true })

/** Peers in an order that stays: by name, numbers by their value (node-2 before node-10). */
export function ordered(peers: readonly Peer[]): Peer[] {
  return peers
    .map((peer) => ({ peer, name: nameOf(peer) }))
    .sort((a, b) => collator.compare(a.name, b.name))
    .map(({ peer }) => peer)
}

/** All kinds of kernel objects together. */
export function total(kinds: Status['kinds']): KindCount {
  const all = Object.values(kinds)
  const sum = (of: keyof KindCount) => all.reduce((n, kind) => n + kind[of], 0)
  return { wanted: sum('wanted'), programmed: sum('programmed'), repaired: sum('repaired') }
}

/** How many kernel objects are not as they should be: there are too few of a kind, or too many. */
export function drift(kinds: Status['kinds']): number {
  return Object.values(kinds).reduce((n, { wanted, programmed }) => n + Math.abs(wanted - programmed), 0)
}
