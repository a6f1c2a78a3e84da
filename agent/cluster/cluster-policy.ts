import { ValueError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { hasUnknownKey } from './document.ts'
import {
  cidrOf,
  isPort,
  listOf,
  metaOf,
  objectAt,
  type Port,
  type Protocol,
  quoted,
  type Selector,
  selectorOf,
} from './reading.ts'

/** The tiers of ClusterNetworkPolicy: Admin decides before NetworkPolicy, Baseline after it. */
export type Tier = 'Admin' | 'Baseline'
/** What a rule of a tier does. Pass ends the tier, and the next one decides. */
export type Action = 'Accept' | 'Deny' | 'Pass'
/** Pods by their labels and the labels of their namespaces. */
export interface PodSelector {
  readonly namespaces: Selector
  readonly pods: Selector
}
/** Who the other end of a rule is. Nodes count by the addresses of their Node objects, in egress only. */
export type TierPeer = PodSelector | { readonly cidr: Cidr } | { readonly nodes: Selector }
/** A rule of a tier. Absent peers are everyone, absent ports all ports of all protocols. No peer at all is nobody. */
export interface TierRule {
  readonly name?: string
  readonly action: Action
  readonly peers?: readonly TierPeer[]
  readonly ports?: readonly Port[]
}
/** A ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2). */
export interface ClusterPolicy {
  readonly name: string
  readonly tier: Tier
  /** 0 to 1000. Lower decides first. */
  readonly priority: number
  readonly subject: PodSelector
  readonly ingress: readonly TierRule[]
  readonly egress: readonly TierRule[]
  /**
   * The rules that plumb cannot read or does not support, one sentence each. Such a rule fails closed. Absent when
   * there are none.
   */
  readonly leftOut?: readonly string[]
}

/**
 * Reads a ClusterNetworkPolicy. Throws ValueError with the object's name and the path of a wrong field outside its
 * rules. A rule that nobody can read fails closed, as the API asks of implementations for a peer of an unknown type: it
 * accepts nobody, or denies everyone.
 */
export function clusterPolicyOf(raw: unknown): ClusterPolicy {
  const { name } = metaOf(raw, 'ClusterNetworkPolicy')
  const what = `ClusterNetworkPolicy ${name}: spec`
  const { tier, priority, subject, ...spec } = objectAt(raw, 'spec')
  if (tier !== 'Admin' && tier !== 'Baseline')
    throw new ValueError(`${what}.tier ${quoted(tier)}: want Admin or Baseline`)
  if (!isPriority(priority)) throw new ValueError(`${what}.priority ${quoted(priority)}: want a number from 0 to 1000`)
  const selected = podsOf(subject, `${what}.subject`)
  if (!selected) throw new ValueError(`${what}.subject: want namespaces or pods`)
  const leftOut: string[] = []
  const rules = (side: 'ingress' | 'egress') => {
    const at = `${what}.${side}`
    return listOf(spec[side] ?? [], at).map((one, i) => closedRuleOf(one, side, `${at}[${i}]`, leftOut))
  }
  const [ingress, egress] = [rules('ingress'), rules('egress')]
  return { name, tier, priority, subject: selected, ingress, egress, ...(leftOut.length > 0 && { leftOut }) }
}

/**
 * What stands for a ClusterNetworkPolicy that nobody can read. Each direction in which it has rules, or may have some, is
 * denied to the pods that it selects, or to all pods when its subject is unreadable. Tier and priority count where they
 * can be read. Undefined when it has no name.
 */
export function closedClusterPolicyOf(raw: unknown): ClusterPolicy | undefined {
  const { name } = objectAt(raw, 'metadata')
  if (typeof name !== 'string' || name === '') return undefined
  const spec = objectAt(raw, 'spec')
  const { tier, priority, subject, ingress, egress } = spec
  // `egres` may be meant to have rules.
  const isClosed = hasUnknownKey('ClusterNetworkPolicy', spec)
  const closed = (rules: unknown): readonly TierRule[] => {
    const hasNone = rules === undefined || rules === null || (Array.isArray(rules) && rules.length === 0)
    return hasNone && !isClosed ? [] : [{ action: 'Deny' }]
  }
  return {
    name,
    tier: tier === 'Baseline' ? tier : 'Admin',
    priority: isPriority(priority) ? priority : 0,
    subject: closedSubjectOf(subject),
    ingress: closed(ingress),
    egress: closed(egress),
  }
}

function closedSubjectOf(raw: unknown): PodSelector {
  const all = { namespaces: [], pods: [] }
  try {
    return podsOf(raw, 'subject') ?? all
  } catch {
    return all
  }
}

function isPriority(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 1000
}

// A rule, or what stands for one that nobody can read. One peer of an unknown type closes the whole rule
// (ClusterNetworkPolicyIngressPeer: an Accept matches no traffic, and any other rule is a "Deny all" rule).
function closedRuleOf(raw: unknown, side: 'ingress' | 'egress', what: string, leftOut: string[]): TierRule {
  const { name, action } = (raw ?? {}) as Record<string, unknown>
  const named = { ...(typeof name === 'string' && name !== '' && { name }) }
  try {
    return { ...named, ...tierRuleOf(raw, side, what) }
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    const accepts = action === 'Accept'
    leftOut.push(`${cause.message}; the rule ${accepts ? 'accepts nothing' : 'denies everything'}`)
    return { ...named, ...(accepts ? { action: 'Accept', peers: [] } : { action: 'Deny' }) }
  }
}

function tierRuleOf(raw: unknown, side: 'ingress' | 'egress', what: string): TierRule {
  const { action, protocols, ...rest } = (raw ?? {}) as Record<string, unknown>
  if (action !== 'Accept' && action !== 'Deny' && action !== 'Pass')
    throw new ValueError(`${what}.action ${quoted(action)}: want Accept, Deny or Pass`)
  const key = side === 'ingress' ? 'from' : 'to'
  const [peersAt, portsAt] = [`${what}.${key}`, `${what}.protocols`]
  const peers = listOf(rest[key], peersAt).flatMap((one, i) => peersOf(one, side, `${peersAt}[${i}]`))
  const ports = listOf(protocols ?? [], portsAt).flatMap((one, i) => portsOf(one, `${portsAt}[${i}]`))
  return { action, peers, ...(ports.length > 0 && { ports }) }
}

function peersOf(raw: unknown, side: 'ingress' | 'egress', what: string): readonly TierPeer[] {
  const pods = podsOf(raw, what)
  if (pods) return [pods]
  const { nodes, networks } = (raw ?? {}) as Record<string, unknown>
  if (side === 'egress' && nodes !== undefined) return [{ nodes: selectorOf(nodes, `${what}.nodes`) }]
  if (side === 'ingress' || networks === undefined)
    throw new ValueError(`${what}: plumb does not support this type of peer`)
  return listOf(networks, `${what}.networks`).map((one, i) => ({ cidr: cidrOf(one, `${what}.networks[${i}]`) }))
}

function podsOf(raw: unknown, what: string): PodSelector | undefined {
  const { namespaces, pods } = (raw ?? {}) as Record<string, unknown>
  if (namespaces !== undefined) return { namespaces: selectorOf(namespaces, `${what}.namespaces`), pods: [] }
  if (pods === undefined) return undefined
  const { namespaceSelector, podSelector } = (pods ?? {}) as Record<string, unknown>
  return {
    namespaces: selectorOf(namespaceSelector ?? {}, `${what}.pods.namespaceSelector`),
    pods: selectorOf(podSelector ?? {}, `${what}.pods.podSelector`),
  }
}

const PROTOCOLS: readonly (readonly [string, Protocol])[] = [
  ['tcp', 'TCP'],
  ['udp', 'UDP'],
  ['sctp', 'SCTP'],
]

// A named port counts for each protocol that a container has it for.
function portsOf(raw: unknown, what: string): readonly Port[] {
  const given = (raw ?? {}) as Record<string, unknown>
  const name = given['destinationNamedPort']
  if (typeof name === 'string' && name !== '') return PROTOCOLS.map(([, protocol]) => ({ protocol, name }))
  const found = PROTOCOLS.find(([key]) => given[key] !== undefined)
  if (!found) throw new ValueError(`${what}: want tcp, udp, sctp or destinationNamedPort`)
  const [key, protocol] = found
  const at = `${what}.${key}.destinationPort`
  const { destinationPort } = (given[key] ?? {}) as Record<string, unknown>
  if (destinationPort === undefined) return [{ protocol }]
  const { number, range = { start: number, end: number } } = (destinationPort ?? {}) as Record<string, unknown>
  const { start, end } = (range ?? {}) as Record<string, unknown>
  if (!isPort(start)) throw new ValueError(`${at} ${quoted(start)}: want a number from 1 to 65535, or a range`)
  if (!isPort(end) || end < start)
    throw new ValueError(`${at}.range.end ${quoted(end)}: want a number from ${start} to 65535`)
  return [{ protocol, from: start, to: end }]
}
