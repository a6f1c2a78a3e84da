import { contains } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { ClusterPolicy } from '../cluster/cluster-policy.ts'
import type { Pod, Policy } from '../cluster/objects.ts'
import type { Port, Protocol } from '../cluster/reading.ts'
import { matches } from './matching.ts'
import { decide, type Objects, type Verdict } from './oracle.ts'
import type { Cluster } from './state.ts'
import { closedVerdict, objectsOf } from './view.ts'

// All pairs of pods at once: pods that are decided alike are one group, and ports that are decided alike one range.

/** What decides about all pairs: the objects of the cluster, and the pods of this node with the addresses that count. */
export interface PairKnowledge {
  readonly cluster: Cluster
  readonly state: {
    readonly locals: ReadonlyMap<string, { readonly ips: readonly Ip[]; readonly isClosed: boolean }>
  }
}
/** A port of each range whose ports are all decided alike. */
export interface Probe {
  readonly protocol: Protocol | 'other'
  readonly from: number
  readonly to: number
}
/** A pod of this node, or another one. */
export interface Member {
  readonly key: string
  readonly pod: Pod
  readonly ips: readonly Ip[]
  readonly isLocal: boolean
  readonly isClosed: boolean
}
/** Pods that are decided alike. */
export interface Group {
  readonly members: readonly Member[]
  readonly isLocal: boolean
  /** The policies that select them, and the same as a text. */
  readonly policies: readonly Policy[]
  readonly selected: string
}
/** The objects that decide. */
export type World = Required<Pick<Objects, 'policies' | 'clusterPolicies'>> & Objects

const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP']
const LAST_PORT = 65_535
/** So many pods are looked at before the work may be left. */
const AT_ONCE = 64

/** The objects of the cluster. */
export function worldOf(known: PairKnowledge): World {
  const objects = objectsOf(known.cluster)
  return { ...objects, clusterPolicies: objects.clusterPolicies ?? [] }
}

/** The namespace of a group. */
export function namespaceOf({ members }: Group): string {
  return members[0]?.pod.namespace ?? ''
}

/** Two pods of two groups. Within a group two different ones: a pod always reaches itself. */
export function pairOf(
  { members }: Group,
  { members: others }: Group,
): readonly [Member | undefined, Member | undefined] {
  return members === others ? [members[0], members[1]] : [members[0], others[0]]
}

/** A range of ports, and what is decided about it. */
export interface Judged {
  readonly probe: Probe
  readonly verdict: Verdict
}
type End = readonly [Group, Member]

/**
 * Decides about one pod to another. Only policies that select one of both count, and their ports. `groups` are those of
 * all pods.
 */
export function judgeOf(objects: World, groups: readonly Group[]): (from: End, to: End) => Iterable<Judged> {
  const worlds = new Map<string, { readonly few: World; readonly probes: readonly Probe[] }>()
  const worldFor = (from: Group, to: Group) => {
    const name = `${from.selected}|${to.selected}`
    const before = worlds.get(name)
    if (before) return before
    const both = new Set([
      ...from.policies.filter(({ egress }) => egress !== undefined),
      ...to.policies.filter(({ ingress }) => ingress !== undefined),
    ])
    const few = { ...objects, policies: objects.policies.filter((policy) => both.has(policy)) }
    const made = { few, probes: probesOf(few, groups) }
    worlds.set(name, made)
    return made
  }
  return function* ([from, one], [to, other]) {
    const { few, probes } = worldFor(from, to)
    const [source, destination] = addressesOf(one, other)
    if (source === undefined || destination === undefined) return
    for (const probe of probes) {
      const { protocol, from: port } = probe
      const closed = one.isClosed ? source : other.isClosed ? destination : undefined
      const verdict = closed
        ? closedVerdict(closed)
        : decide(few, { from: one.pod, to: other.pod, source, destination, protocol, port })
      yield { probe, verdict }
    }
  }
}

// The first address of the sender in a family that both have, as `plumb policy test` takes it.
function addressesOf({ ips }: Member, { ips: others }: Member): readonly [Ip | undefined, Ip | undefined] {
  const isSix = (ip: Ip) => ip.includes(':')
  const source = ips.find((ip) => others.some((other) => isSix(other) === isSix(ip)))
  return [source, others.find((ip) => source !== undefined && isSix(ip) === isSix(source))]
}

/** All pods with an address in groups, for one world. Yields where the work may be left. */
export function* groupsOf(known: PairKnowledge, objects: World): Generator<void, Group[]> {
  return yield* selectedIn(yield* alikeOf(known, objects), objects)
}

/**
 * All pods with an address, gathered: of one namespace, with the same labels, ports and networks as far as they matter to
 * `apart`. Yields where the work may be left.
 */
export function* alikeOf({ cluster, state }: PairKnowledge, apart: World): Generator<void, Member[][]> {
  const labels = labelsOf(apart)
  const networks = networksOf(apart)
  const groups = new Map<string, Member[]>()
  let count = 0
  for (const [key, pod] of cluster.pods) {
    if (++count % AT_ONCE === 0) yield
    const local = state.locals.get(key)
    const ips = local?.ips ?? pod.ips
    if (ips.length === 0) continue
    const isClosed = local?.isClosed === true
    const member: Member = { key, pod, ips, isLocal: local !== undefined, isClosed }
    const alike = JSON.stringify([
      pod.namespace,
      labels.map((name) => (Object.hasOwn(pod.labels, name) ? pod.labels[name] : null)),
      pod.ports,
      ips.map((ip) => [ip.includes(':'), networks.flatMap((network, i) => (contains(network, ip) ? [i] : []))]),
      member.isLocal,
      isClosed && key,
    ])
    const members = groups.get(alike)
    if (members) members.push(member)
    else groups.set(alike, [member])
  }
  return [...groups.values()]
}

/** The groups with the policies that select them in a world. Yields where the work may be left. */
export function* selectedIn(all: readonly (readonly Member[])[], objects: World): Generator<void, Group[]> {
  const policiesOf = Map.groupBy(objects.policies, ({ namespace }) => namespace)
  const groups: Group[] = []
  for (const members of all) {
    yield
    const { pod, isLocal } = members[0] as Member
    const policies = (policiesOf.get(pod.namespace) ?? []).filter((one) => matches(one.pods, pod.labels))
    const selected = policies.map(({ namespace, name }) => `${namespace}/${name}`).join()
    groups.push({ members, isLocal, policies, selected })
  }
  return groups
}

/** The number of pairs of different pods of two groups. */
export function pairCount({ members }: Group, { members: others }: Group): number {
  return members.length * others.length - (members === others ? members.length : 0)
}

/** Pairs of different pods of two groups, one by one. */
export function* pairsOf({ members }: Group, { members: others }: Group): Generator<readonly [Member, Member]> {
  for (const one of members) for (const other of others) if (one !== other) yield [one, other]
}

// The labels of pods that a selector asks for.
function labelsOf({ policies, clusterPolicies }: World): string[] {
  const selectors = [
    ...policies.flatMap((one) => [
      one.pods,
      ...rulesOf(one).flatMap(({ peers = [] }) => peers.flatMap((peer) => ('pods' in peer ? [peer.pods] : []))),
    ]),
    ...clusterPolicies.flatMap((one) => [
      one.subject.pods,
      ...tierRulesOf(one).flatMap(({ peers = [] }) => peers.flatMap((peer) => ('pods' in peer ? [peer.pods] : []))),
    ]),
  ]
  return [...new Set(selectors.flatMap((selector) => selector.map(({ key }) => key)))].sort()
}

function networksOf({ policies, clusterPolicies }: World) {
  const blocks = policies.flatMap((one) =>
    rulesOf(one).flatMap(({ peers = [] }) =>
      peers.flatMap((peer) => ('cidr' in peer ? [peer.cidr, ...peer.except] : [])),
    ),
  )
  const tiers = clusterPolicies.flatMap((one) =>
    tierRulesOf(one).flatMap(({ peers = [] }) => peers.flatMap((peer) => ('cidr' in peer ? [peer.cidr] : []))),
  )
  return [...new Set([...blocks, ...tiers])]
}

function rulesOf({ ingress = [], egress = [] }: Policy) {
  return [...ingress, ...egress]
}

function tierRulesOf({ ingress, egress }: ClusterPolicy) {
  return [...ingress, ...egress]
}

// Ports from one border to the next are decided alike. A named port is where a pod serves it.
function probesOf({ policies, clusterPolicies }: World, groups: readonly Group[]): Probe[] {
  const ports: Port[] = [
    ...policies.flatMap((one) => rulesOf(one).flatMap((rule) => rule.ports ?? [])),
    ...clusterPolicies.flatMap((one) => tierRulesOf(one).flatMap((rule) => rule.ports ?? [])),
  ]
  const names = new Set(ports.flatMap(({ name }) => name ?? []))
  // The pods of a group have the same ports.
  const served = groups.flatMap(({ members }) => members[0]?.pod.ports.filter(({ name }) => names.has(name)) ?? [])
  const ranges = PROTOCOLS.flatMap((protocol) => {
    const borders = new Set([1, LAST_PORT + 1])
    for (const one of ports)
      if (one.protocol === protocol && one.from !== undefined) {
        borders.add(Math.max(one.from, 1))
        borders.add((one.to ?? one.from) + 1)
      }
    for (const one of served) if (one.protocol === protocol) borders.add(one.port).add(one.port + 1)
    const sorted = [...borders].sort((a, b) => a - b)
    return sorted.slice(0, -1).map((from, i): Probe => ({ protocol, from, to: (sorted[i + 1] ?? LAST_PORT + 1) - 1 }))
  })
  return [...ranges, { protocol: 'other', from: 0, to: 0 }]
}

/** Ranges of ports in words: `TCP 80, 443; UDP all ports`. */
export function wordsOf(probes: readonly Probe[]): string {
  return [...Map.groupBy(probes, ({ protocol }) => protocol)]
    .map(([protocol, all]) => {
      if (protocol === 'other') return 'ICMP and others'
      const ranges: { from: number; to: number }[] = []
      for (const { from, to } of all) {
        const last = ranges.at(-1)
        if (last && last.to + 1 === from) last.to = to
        else ranges.push({ from, to })
      }
      if (ranges.length === 1 && ranges[0]?.from === 1 && ranges[0].to === LAST_PORT) return `${protocol} all ports`
      return `${protocol} ${ranges.map(({ from, to }) => (from === to ? from : `${from}-${to}`)).join(', ')}`
    })
    .join('; ')
}
