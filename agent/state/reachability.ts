import type { KindCount, Peer, Status } from './status.ts'

/** The display name of a peer. flannel's leases have no node name. For such a lease the function returns an address. */
export function nameOf({ node, ips, subnets }: Pick<Peer, 'node' | 'ips' | 'subnets'>): string {
  return node ?? ips.v4 ?? ips.v6 ?? subnets.v4 ?? subnets.v6 ?? 'a node without a name'
}

/** The reason why a peer's pods are unreachable. Undefined when no problem is known. */
export function trouble({
  problem,
  probe,
  routeMtu,
  isAway,
}: Pick<Peer, 'problem' | 'probe' | 'routeMtu' | 'isAway'>): string | undefined {
  if (problem !== undefined || !probe) return problem
  if (probe.state === 'narrow') {
    const mtus = [routeMtu?.v4, routeMtu?.v6].filter((one) => one !== undefined).join(', ')
    return `answers, but packets of full size do not reach it${mtus && `; its route has mtu ${mtus}`}`
  }
  if (probe.state === 'silent' && isAway) return 'away: Kubernetes has no news of the node either'
  return probe.state === 'silent' ? `programmed, but no answer: ${probe.lost} of ${probe.sent} probes lost` : undefined
}

/** Describes the state of a peer. The word "reachable" appears only for a peer that answers probes. */
export function reach(peer: Pick<Peer, 'problem' | 'probe' | 'routeMtu' | 'isAway'>): string {
  const { problem, probe } = peer
  if (problem !== undefined) return `unreachable: ${problem}`
  if (!probe) return 'programmed, not probed'
  if (probe.state === 'unknown') return 'programmed, not probed yet'
  const ms = probe.ms === undefined ? '' : `, ${probe.ms < 10 ? probe.ms.toFixed(2) : Math.round(probe.ms)} ms`
  return trouble(peer) ?? `reachable${ms}${probe.lost > 0 ? `, ${probe.lost} of ${probe.sent} probes lost` : ''}`
}

/** The peers with unreachable pods. Either their kernel objects cannot be programmed, or they do not answer probes. */
export function unreachable(peers: readonly Peer[]): Peer[] {
  return peers.filter((peer) => trouble(peer) !== undefined)
}

/** Compares names. Numbers in them compare by value. */
export const collator = new Intl.Collator('en', { numeric: true })

/** Sorts peers by name. Numbers in names sort by value (node-2 before node-10). */
export function ordered(peers: readonly Peer[]): Peer[] {
  return peers
    .map((peer) => ({ peer, name: nameOf(peer) }))
    .sort((a, b) => collator.compare(a.name, b.name))
    .map(({ peer }) => peer)
}

/** The sum of the counts of all kinds of kernel objects. */
export function total(kinds: Status['kinds']): KindCount {
  const all = Object.values(kinds)
  const sum = (of: keyof KindCount) => all.reduce((n, kind) => n + kind[of], 0)
  return { wanted: sum('wanted'), programmed: sum('programmed'), repaired: sum('repaired') }
}

/** The number of missing and surplus kernel objects, over all kinds. */
export function drift(kinds: Status['kinds']): number {
  return Object.values(kinds).reduce((n, { wanted, programmed }) => n + Math.abs(wanted - programmed), 0)
}
