// The samples of metrics that have a series for a peer or a BGP session: those of the worst ones.
import type { Probe } from '../backend/probes.ts'
import type { BgpSession } from '../bgp/view.ts'
import { both } from '../lease/families.ts'
import { nameOf } from '../state/reachability.ts'
import { type PeerState, stateOf } from '../state/rows.ts'
import type { Peer } from '../state/status.ts'
import type { Sample, Scene } from './metric.ts'

const STATES: readonly PeerState[] = ['reachable', 'narrow', 'silent', 'away', 'unknown', 'unreachable']

/** The number of peers in each state. */
export function peersByState({ status: { peers } }: Scene): Sample[] {
  const counts = new Map<PeerState, number>()
  for (const peer of peers) counts.set(stateOf(peer), (counts.get(stateOf(peer)) ?? 0) + 1)
  return STATES.map((state): Sample => [{ state }, counts.get(state) ?? 0])
}

/** The share of lost probes by node. A node with an old and a new lease appears once, with the worse probe result. */
export function losses(scene: Scene): Sample[] {
  return probed(scene).map(([node, { lost, sent }]): Sample => [{ node }, lost / sent])
}

/** The seconds of the last answer by node. */
export function roundTrips(scene: Scene): Sample[] {
  return probed(scene).flatMap(([node, { ms }]): Sample[] => (ms === undefined ? [] : [[{ node }, ms / 1000]]))
}

function probed({ status: { peers }, most }: Scene): (readonly [node: string, probe: Probe])[] {
  const all = new Map<string, Probe>()
  for (const peer of peers) {
    const [name, { probe }] = [nameOf(peer), peer]
    if (probe && probe.sent > 0 && probe.lost >= (all.get(name)?.lost ?? 0)) all.set(name, probe)
  }
  return [...all].sort(([, one], [, other]) => badness(other) - badness(one)).slice(0, most)
}

// A lost probe is worse than any round trip, which is shorter than 2 s.
function badness({ lost, sent, ms = 0 }: Probe): number {
  return (lost / sent) * 100_000 + ms
}

/** The largest packet by node. A node with an old and a new lease appears once, with the smaller size. */
export function sizes({ status: { peers }, most }: Scene): Sample[] {
  const all = byNode(peers, ({ probe }) => probe?.mtu, Math.min)
  return series(all.sort(([, one], [, other]) => one - other).slice(0, most))
}

/** The MTU of the routes by node, the smallest of its families and leases. */
export function routeMtus({ status: { peers }, most }: Scene): Sample[] {
  const smallest = ({ routeMtu }: Peer) => (routeMtu ? Math.min(...both(routeMtu)) : undefined)
  const all = byNode(peers, smallest, Math.min)
  return series(all.sort(([, one], [, other]) => one - other).slice(0, most))
}

/** The age of the last handshake by node. A node with an old and a new lease appears once, with the older handshake. */
export function handshakes({ status: { peers }, most }: Scene): Sample[] {
  const all = byNode(peers, ({ handshakeAge }) => handshakeAge, Math.max)
  return series(all.sort(([, one], [, other]) => other - one).slice(0, most))
}

function byNode(
  peers: readonly Peer[],
  valueIn: (peer: Peer) => number | undefined,
  chosen: (one: number, other: number) => number,
): [node: string, value: number][] {
  const all = new Map<string, number>()
  for (const peer of peers) {
    const [name, value] = [nameOf(peer), valueIn(peer)]
    if (value !== undefined) all.set(name, chosen(value, all.get(name) ?? value))
  }
  return [...all]
}

function series(all: readonly (readonly [node: string, value: number])[]): Sample[] {
  return all.map(([node, value]): Sample => [{ node }, value])
}

/** A value of each BGP session, those that are away first. Undefined without BGP. */
export function sessions(value: (one: BgpSession) => number): (scene: Scene) => Sample[] | undefined {
  return ({ status: { bgp }, most }) => {
    const away = bgp?.sessions.filter(({ state }) => state !== 'Established') ?? []
    const established = bgp?.sessions.filter(({ state }) => state === 'Established') ?? []
    return [...away, ...established]
      .slice(0, most)
      .map((one): Sample => [{ kind: one.kind, peer: one.name, address: one.address }, value(one)])
  }
}
