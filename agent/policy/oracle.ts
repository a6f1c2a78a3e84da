import { contains } from '../../lib/text/cidr.ts'
import { bitsOf, type Ip, split } from '../../lib/text/ip.ts'
import type { ClusterPolicy, PodSelector, Tier, TierPeer, TierRule } from '../cluster/cluster-policy.ts'
import type { ClusterNode, Namespace, Peer, Pod, Policy, Rule } from '../cluster/objects.ts'
import type { Labels, Port, Protocol, Selector } from '../cluster/reading.ts'

// A second evaluation of NetworkPolicy, for one connection. It is plain and slow, and shares no code with the compiler:
// tests and `plumb policy test` hold the two against each other.

/** The objects that decide. */
export interface Objects {
  readonly pods: readonly Pod[]
  readonly namespaces: readonly Namespace[]
  readonly policies: readonly Policy[]
  /** Absent where the cluster has none. */
  readonly clusterPolicies?: readonly ClusterPolicy[]
  readonly nodes?: readonly ClusterNode[]
}
/** One end of a connection: a pod, or an address that is no pod's. */
export type End = Pod | { readonly ip: Ip }
/** A connection to try. */
export interface Attempt {
  readonly from: End
  readonly to: End
  /** The addresses on the wire. */
  readonly source: Ip
  readonly destination: Ip
  /** `other` is a protocol without ports. No rule with ports allows it. */
  readonly protocol: Protocol | 'other'
  readonly port: number
  /** The pod reaches itself by a Service. Without one the packets never leave the pod. */
  readonly isHairpin?: boolean
}
/** Whether a connection passes, and what decided: `x/default-deny denies ingress to x/a`. */
export interface Verdict {
  readonly passes: boolean
  readonly reason: string
}

/** The verdict on what the node of a pod sends to it. */
export const FROM_ITS_NODE: Verdict = { passes: true, reason: 'a node reaches its own pods' }

/**
 * Decides one connection (networking.k8s.io/v1 NetworkPolicySpec; policy.networking.k8s.io/v1alpha2
 * ClusterNetworkPolicySpec). `sides` are the directions that count: the node of a pod decides its directions.
 */
export function decide(
  objects: Objects,
  attempt: Attempt,
  sides: readonly ('ingress' | 'egress')[] = ['ingress', 'egress'],
): Verdict {
  const { from, to, isHairpin = false } = attempt
  const isSelf = isPod(from) && isPod(to) && from.namespace === to.namespace && from.name === to.name
  if (isSelf && !isHairpin) return { passes: true, reason: 'a pod reaches itself' }
  const out = isPod(from) && sides.includes('egress') ? direction(objects, attempt, from, 'egress') : undefined
  if (out && !out.passes) return out
  const into = isPod(to) && sides.includes('ingress') ? ingress(objects, attempt, to) : undefined
  if (into && !into.passes) return into
  const reasons = [out, into].flatMap((one) => (one ? [one.reason] : []))
  return { passes: true, reason: reasons.join('; ') || 'no pod is part of it' }
}

// NetworkPolicy lets the node of a pod in (networking.k8s.io/v1 NetworkPolicySpec, ingress), and no readable rule of a
// tier is about nodes that send. What a pod sends to its node is a matter of egress.
function ingress(objects: Objects, attempt: Attempt, subject: Pod): Verdict {
  const isItsNode = !isPod(attempt.from) && isNodeOf(objects, subject, attempt.source)
  return isItsNode ? FROM_ITS_NODE : direction(objects, attempt, subject, 'ingress')
}

function isNodeOf({ nodes = [] }: Objects, { node }: Pod, address: Ip): boolean {
  return nodes.some(({ name, ips }) => name === node && ips.includes(address))
}

// The tier Admin decides first, then NetworkPolicy for pods that it isolates, then the tier Baseline.
function direction(objects: Objects, attempt: Attempt, subject: Pod, side: 'ingress' | 'egress'): Verdict {
  const first = tier(objects, attempt, subject, side, 'Admin')
  if (first) return first
  // No NetworkPolicy blocks a pod from itself.
  const second = attempt.isHairpin ? undefined : isolation(objects, attempt, subject, side)
  if (second) return second
  const third = tier(objects, attempt, subject, side, 'Baseline')
  return third ?? { passes: true, reason: `no policy selects ${subject.namespace}/${subject.name} for ${side}` }
}

// Undefined when no NetworkPolicy isolates the pod.
function isolation(objects: Objects, attempt: Attempt, subject: Pod, side: 'ingress' | 'egress'): Verdict | undefined {
  const isolating: Policy[] = []
  for (const policy of objects.policies) {
    if (policy[side] === undefined || policy.namespace !== subject.namespace) continue
    if (selects(policy.pods, subject.labels)) isolating.push(policy)
  }
  if (isolating.length === 0) return undefined
  for (const policy of isolating) {
    const rules = policy[side] ?? []
    for (let i = 0; i < rules.length; i++) {
      const rule = rules[i] as Rule
      if (peerMatches(objects, policy, rule, attempt, side) && portMatches(rule, attempt))
        return { passes: true, reason: `${policy.namespace}/${policy.name} ${side}[${i}] allows it` }
    }
  }
  const names = isolating.map(({ namespace, name }) => `${namespace}/${name}`).join(', ')
  const pod = `${subject.namespace}/${subject.name}`
  return { passes: false, reason: `${names} isolates ${pod} for ${side}, and no rule allows it` }
}

// Undefined when no rule of the tier decides: none matches, or the first one that matches passes it on.
function tier(
  objects: Objects,
  attempt: Attempt,
  subject: Pod,
  side: 'ingress' | 'egress',
  which: Tier,
): Verdict | undefined {
  const inOrder = (objects.clusterPolicies ?? [])
    .filter((one) => one.tier === which)
    .sort((one, other) => one.priority - other.priority || (one.name > other.name ? 1 : -1))
  for (const policy of inOrder) {
    if (!isSelected(objects, policy.subject, subject)) continue
    for (const [i, rule] of policy[side].entries()) {
      if (!tierPeerMatches(objects, rule, attempt, side) || !portMatches(rule, attempt)) continue
      if (rule.action === 'Pass') return undefined
      const label = rule.name === undefined ? '' : ` "${rule.name}"`
      const named = `ClusterNetworkPolicy ${policy.name} (${which}) ${side}[${i}]${label}`
      return rule.action === 'Accept'
        ? { passes: true, reason: `${named} accepts it` }
        : { passes: false, reason: `${named} denies it` }
    }
  }
  return undefined
}

function tierPeerMatches(objects: Objects, { peers }: TierRule, attempt: Attempt, side: 'ingress' | 'egress'): boolean {
  if (peers === undefined) return true
  const [other, address] = side === 'ingress' ? [attempt.from, attempt.source] : [attempt.to, attempt.destination]
  return peers.some((peer: TierPeer) => {
    if ('cidr' in peer) return contains(peer.cidr, address)
    if ('nodes' in peer)
      return (objects.nodes ?? []).some(({ labels, ips }) => ips.includes(address) && selects(peer.nodes, labels))
    return isPod(other) && isSelected(objects, peer, other)
  })
}

function isSelected({ namespaces }: Objects, { namespaces: homes, pods }: PodSelector, pod: Pod): boolean {
  const home = namespaces.find(({ name }) => name === pod.namespace)
  return home !== undefined && selects(homes, home.labels) && selects(pods, pod.labels)
}

function peerMatches(
  objects: Objects,
  policy: Policy,
  { peers }: Rule,
  attempt: Attempt,
  side: 'ingress' | 'egress',
): boolean {
  if (peers === undefined) return true
  const [other, address] = side === 'ingress' ? [attempt.from, attempt.source] : [attempt.to, attempt.destination]
  return peers.some((peer) => isPeer(objects, policy, peer, other, address))
}

function isPeer({ namespaces }: Objects, policy: Policy, peer: Peer, other: End, address: Ip): boolean {
  if ('cidr' in peer) return isInBlock(peer, bitsOf(address))
  if (!isPod(other) || !selects(peer.pods, other.labels)) return false
  if (peer.namespaces === undefined) return other.namespace === policy.namespace
  const home = namespaces.find(({ name }) => name === other.namespace)
  return home !== undefined && selects(peer.namespaces, home.labels)
}

// A block may have tens of thousands of exceptions. Reading their text takes longer than all else.
const parsed = new WeakMap<Block, { readonly block: Network; readonly except: readonly Network[] }>()
type Block = Extract<Peer, { readonly cidr: unknown }>
type Network = ReturnType<typeof split>

function isInBlock(peer: Block, { family, bits }: ReturnType<typeof bitsOf>): boolean {
  const known = parsed.get(peer) ?? { block: split(peer.cidr), except: peer.except.map(split) }
  parsed.set(peer, known)
  const has = (one: Network) => one.family === family && bits >= one.first && bits <= one.last
  return has(known.block) && !known.except.some(has)
}

function portMatches({ ports }: Pick<Rule, 'ports'>, { protocol, port, to }: Attempt): boolean {
  if (ports === undefined) return true
  return ports.some((one: Port) => {
    if (one.protocol !== protocol) return false
    if (one.name !== undefined) {
      const served = isPod(to) ? to.ports.filter(({ name }) => name === one.name) : []
      return served.some((other) => other.protocol === protocol && other.port === port)
    }
    return one.from === undefined || (port >= one.from && port <= (one.to ?? one.from))
  })
}

function selects(selector: Selector, labels: Labels): boolean {
  for (const { key, operator, values } of selector) {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined
    if (operator === 'In' && (value === undefined || !values.includes(value))) return false
    if (operator === 'NotIn' && value !== undefined && values.includes(value)) return false
    if (operator === 'Exists' && value === undefined) return false
    if (operator === 'DoesNotExist' && value !== undefined) return false
  }
  return true
}

function isPod(end: End): end is Pod {
  return 'name' in end
}
