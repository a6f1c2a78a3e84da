import type { KindCount, Peer, Status } from './status.ts'

/** What to call a peer: flannel's leases carry no name, so that the address has to do. */
export function nameOf({ node, ips, subnets }: Pick<Peer, 'node' | 'ips' | 'subnets'>): string {
  return node ?? ips.v4 ?? ips.v6 ?? subnets.v4 ?? subnets.v6 ?? 'a node without a name'
}

/** Why a peer's pods cannot be reached; undefined when nothing says so. */
export function trouble({ problem, probe }: Pick<Peer, 'problem' | 'probe'>): string | undefined {
  return problem ?? (probe?.state === 'silent' ? `programmed, but no answer: ${probe.lost} of ${probe.sent} probes lost` : undefined)
}

/** How a peer stands, in words: it is called reachable only when it answers. */
export function reach(peer: Pick<Peer, 'problem' | 'probe'>): string {
  const { problem, probe } = peer
  if (problem !== undefined) return `unreachable: ${problem}`
  if (!probe) return 'programmed, not probed'
  if (probe.state === 'unknown') return 'programmed, not probed yet'
  const ms = probe.ms === undefined ? '' : `, ${probe.ms < 10 ? probe.ms.toFixed(2) : Math.round(probe.ms)} ms`
  return trouble(peer) ?? `reachable${ms}${probe.lost > 0 ? `, ${probe.lost} of ${probe.sent} probes lost` : ''}`
}

/** The peers whose pods cannot be reached: what they need cannot be programmed, or they do not answer. */
export function unreachable(peers: readonly Peer[]): Peer[] {
  return peers.filter((peer) => trouble(peer) !== undefined)
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
