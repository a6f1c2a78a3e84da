import { contains, isSix } from '../../lib/text/cidr.ts'
import { digest } from '../../lib/text/digest.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import type { KindName, Objects } from '../cluster/kinds.ts'
import type { Peer, Policy, Rule } from '../cluster/objects.ts'
import type { Labels, Port, Selector } from '../cluster/reading.ts'

// NetworkPolicy as data of nft. Begin with `compile`. A pod's address leads through a map to the chain of its set of policies; pods with the same policies share it.
// A chain is named by its content, so that a change makes a new chain, and one element switches a pod from one to the other.

/** The kinds of objects that policies are about. */
export const POLICY_KINDS = ['pods', 'namespaces', 'policies'] as const satisfies readonly KindName[]
/** The objects that policies are about. */
export type Cluster = Pick<Objects, (typeof POLICY_KINDS)[number]>
/** A set of nft: the type of its keys, and its elements as nft's text. */
export interface NftSet {
  readonly type: string
  readonly isInterval?: true
  readonly elements: ReadonlySet<string>
}
/** What the kernel has to have. All names are below one table. */
export interface Compiled {
  readonly sets: ReadonlyMap<string, NftSet>
  readonly chains: ReadonlyMap<string, readonly string[]>
  /** Of each pod of this node that a policy isolates: the chain of its address. */
  readonly maps: Readonly<Record<MapName, ReadonlyMap<Ip, string>>>
}
/** The maps from an address to its chain. */
export type MapName = 'ingress4' | 'ingress6' | 'egress4' | 'egress6'
/** All of them. */
export const MAPS: readonly MapName[] = ['ingress4', 'ingress6', 'egress4', 'egress6']

type Family = 4 | 6
type Side = 'ingress' | 'egress'
/** The chain of pods that are not known yet. */
const CLOSED = 'closed'
const FAMILIES: readonly Family[] = [4, 6]
const WORD = { 4: 'ip', 6: 'ip6' } as const
const TYPE = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const

/** Compiles the policies for the pods of one node. Policies that select no pod of the node cost nothing. `closed` are addresses of pods that are not known yet. Pure. */
export function compile(cluster: Cluster, node: string, closed: readonly Ip[] = []): Compiled {
  const [sets, chains] = [new Map<string, NftSet>(), new Map<string, readonly string[]>()]
  const maps: Record<MapName, Map<Ip, string>> = { ingress4: new Map(), ingress6: new Map(), egress4: new Map(), egress6: new Map() }
  const [named, byNamespace] = [namesBySet(cluster), policiesByNamespace(cluster)]
  const context: Context = { cluster, named, sets }
  // Pods with the same policies share a chain, which is made once.
  const made = new Map<string, string>()
  for (const pod of cluster.pods.values()) {
    if (pod.node !== node) continue
    const all = (byNamespace.get(pod.namespace) ?? []).filter(({ pods }) => matches(pods, pod.labels))
    for (const side of ['ingress', 'egress'] as const) {
      const own = all.filter((policy) => policy[side] !== undefined)
      if (own.length === 0) continue
      const key = `${side} ${own.map(({ namespace, name }) => `${namespace}/${name}`).join(' ')}`
      const chain = made.get(key) ?? addChain(own, side, context, chains)
      made.set(key, chain)
      for (const ip of pod.ips) maps[`${side}${isSix(ip) ? 6 : 4}`].set(ip, chain)
    }
  }
  if (closed.length > 0) chains.set(CLOSED, ['counter drop'])
  for (const ip of closed) for (const side of ['ingress', 'egress'] as const) maps[`${side}${isSix(ip) ? 6 : 4}`].set(ip, CLOSED)
  const own = [...cluster.pods.values()].filter((pod) => pod.node === node)
  for (const family of FAMILIES) {
    const ips = own.flatMap((pod) => pod.ips.filter((ip) => isSix(ip) === (family === 6)))
    sets.set(`self${family}`, { type: `${TYPE[family]} . ${TYPE[family]}`, elements: new Set(ips.map((ip) => `${ip} . ${ip}`)) })
  }
  return { sets, chains, maps }
}

interface Context {
  readonly cluster: Cluster
  readonly named: ReadonlyMap<string, readonly (readonly [Ip, number])[]>
  readonly sets: Map<string, NftSet>
}

function addChain(policies: readonly Policy[], side: Side, context: Context, chains: Map<string, readonly string[]>): string {
  const lines = [...new Set(policies.flatMap((policy) => (policy[side] as readonly Rule[]).flatMap((rule) => linesOf(rule, policy, side, context)))), 'counter drop']
  const name = `${side}_${digest(lines.join('\n'))}`
  chains.set(name, lines)
  return name
}

// A rule of a policy: every peer with every port, per family where one of the two belongs to a family.
function linesOf({ peers, ports }: Rule, policy: Policy, side: Side, context: Context): string[] {
  const end = side === 'ingress' ? 'saddr' : 'daddr'
  const said = `comment "${`${policy.namespace}/${policy.name}`.slice(0, 120)}"`
  const who: readonly Match[] = peers === undefined ? [{ text: '' }] : peers.flatMap((peer) => peerMatches(peer, policy, end, context))
  const where: readonly Match[] = ports === undefined ? [{ text: '' }] : ports.flatMap((port) => portMatches(port, context))
  return who.flatMap((one) =>
    where.flatMap((other) => {
      if (one.family !== undefined && other.family !== undefined && one.family !== other.family) return []
      return [[one.text, other.text, 'return', said].filter(Boolean).join(' ')]
    }),
  )
}

/** A match of nft, for one family or for both. */
interface Match {
  readonly text: string
  readonly family?: Family
}

function peerMatches(peer: Peer, policy: Policy, end: string, context: Context): Match[] {
  if ('cidr' in peer) {
    const family = isSix(peer.cidr) ? 6 : 4
    const field = `${WORD[family]} ${end}`
    const text = `${anywhere(peer.cidr) ? `meta nfproto ipv${family}` : `${field} ${peer.cidr}`}${peer.except.length === 0 ? '' : ` ${field} != { ${merged(peer.except).join(', ')} }`}`
    return [{ text, family }]
  }
  return FAMILIES.map((family) => ({ text: `${WORD[family]} ${end} @${peerSet(peer, policy, family, context)}`, family }))
}

// The set of a selector, not of a policy: policies with the same selector share it.
function peerSet(peer: { readonly pods: Selector; readonly namespaces?: Selector }, { namespace }: Policy, family: Family, { cluster, sets }: Context): string {
  const name = `pods${family}_${digest(JSON.stringify([peer.namespaces ?? namespace, peer.pods]))}`
  if (!sets.has(name)) {
    const homes = new Set([...cluster.namespaces.values()].flatMap((one) => ((peer.namespaces === undefined ? one.name === namespace : matches(peer.namespaces, one.labels)) ? [one.name] : [])))
    if (peer.namespaces === undefined) homes.add(namespace)
    const elements = new Set<string>()
    for (const pod of cluster.pods.values()) if (homes.has(pod.namespace) && matches(peer.pods, pod.labels)) for (const ip of pod.ips) if (isSix(ip) === (family === 6)) elements.add(ip)
    sets.set(name, { type: TYPE[family], elements })
  }
  return name
}

function portMatches({ protocol, from, to, name }: Port, { named, sets }: Context): Match[] {
  const word = protocol.toLowerCase()
  if (name === undefined && from === undefined) return [{ text: `meta l4proto ${word}` }]
  if (name === undefined) return [{ text: `${word} dport ${from === to ? from : `${from}-${to}`}` }]
  // The port of this name of whichever pod the packet goes to.
  return FAMILIES.map((family) => {
    const set = `ports${family}_${digest(`${name} ${word}`)}`
    const all = named.get(`${name} ${protocol}`) ?? []
    if (!sets.has(set)) sets.set(set, { type: `${TYPE[family]} . inet_service`, elements: new Set(all.flatMap(([ip, port]) => (isSix(ip) === (family === 6) ? [`${ip} . ${port}`] : []))) })
    return { text: `meta l4proto ${word} ${WORD[family]} daddr . th dport @${set}`, family }
  })
}

function namesBySet({ pods }: Cluster): Map<string, (readonly [Ip, number])[]> {
  const found = new Map<string, (readonly [Ip, number])[]>()
  for (const pod of pods.values())
    for (const { name, protocol, port } of pod.ports) {
      const key = `${name} ${protocol}`
      const list = found.get(key) ?? []
      for (const ip of pod.ips) list.push([ip, port])
      found.set(key, list)
    }
  return found
}

function policiesByNamespace({ policies }: Cluster): Map<string, Policy[]> {
  const found = new Map<string, Policy[]>()
  const sorted = [...policies.entries()].sort(([a], [b]) => (a < b ? -1 : 1))
  for (const [, policy] of sorted) found.set(policy.namespace, [...(found.get(policy.namespace) ?? []), policy])
  return found
}

/** Whether labels are what a selector requires (meta/v1 LabelSelector). */
export function matches(selector: Selector, labels: Labels): boolean {
  return selector.every(({ key, operator, values }) => {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined
    if (operator === 'Exists') return value !== undefined
    if (operator === 'DoesNotExist') return value === undefined
    const isIn = value !== undefined && values.includes(value)
    return operator === 'In' ? isIn : !isIn
  })
}

function anywhere(cidr: Cidr): boolean {
  return cidr.endsWith('/0')
}

// nft refuses overlapping elements of one set.
function merged(cidrs: readonly Cidr[]): Cidr[] {
  const sorted = [...new Set(cidrs)].sort((a, b) => split(a).length - split(b).length)
  return sorted.filter((one, i) => !sorted.slice(0, i).some((wider) => contains(wider, split(one).ip)))
}
