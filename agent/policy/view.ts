import { localAddresses } from '../../lib/os/routes.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp } from '../../lib/text/ip.ts'
import type { ClusterPolicy, TierPeer, TierRule } from '../cluster/cluster-policy.ts'
import type { Peer, Pod, Policy, Rule } from '../cluster/objects.ts'
import type { Port, Protocol, Requirement, Selector } from '../cluster/reading.ts'
import { matches } from './matching.ts'
import { decide, type End, FROM_ITS_NODE, type Objects, type Verdict } from './oracle.ts'
import type { Cluster, PolicyState } from './state.ts'
import { SIDES, type Side } from './table.ts'

// What people see of policies: the policies of each pod, the peers of one pod, and the decision about one connection.

/** What the agent knows, to answer from. */
export interface PolicyKnowledge {
  readonly cluster: Cluster
  readonly state: PolicyState
  readonly subnets: readonly Cidr[]
  readonly isAudit: boolean
}
/** A pod of this node, and the names of the policies that select it. */
export interface PodSummary {
  readonly pod: string
  readonly addresses: readonly Ip[]
  /** ADD has announced the pod, and the cluster has no object of it yet. All of its packets are refused. */
  readonly isClosed: boolean
  /** `x/allow-web`, or `ClusterNetworkPolicy deny-all (Admin)`. Empty: no policy selects the pod for this direction. */
  readonly ingress: readonly string[]
  readonly egress: readonly string[]
}
/** One rule that is about a pod. */
export interface RuleView {
  /** `x/allow-web ingress[0]` */
  readonly rule: string
  readonly action: 'Accept' | 'Deny' | 'Pass'
  /** The peers in words. */
  readonly peers: readonly string[]
  /** The ports: `TCP 80`, `TCP 8000-8080`, `UDP dns`, or `all ports`. */
  readonly ports: readonly string[]
  /** The pods that the peers select now. */
  readonly pods: readonly string[]
}
/** One direction of a pod. */
export interface SideView {
  /** The NetworkPolicies that isolate the pod. Empty: it is not isolated. */
  readonly isolatedBy: readonly string[]
  /** The rules in the order in which they decide. */
  readonly rules: readonly RuleView[]
}
/** A pod of this node with its rules. */
export interface PodDetail extends Omit<PodSummary, Side> {
  readonly ingress: SideView
  readonly egress: SideView
}
/** A connection that somebody asks about. Each end is `namespace/name` of a pod, or an address. */
export interface Asked {
  readonly from: string
  readonly to: string
  /** ICMP has no ports. Services do not translate it. */
  readonly protocol: Protocol | 'ICMP'
  readonly port: number
}
/** Where Services lead the packets to an address and port. */
export interface Translated {
  /** The address and port that were asked for, in words. */
  readonly what: string
  /** The endpoints. Empty when the rules of Services refuse the packets. */
  readonly endpoints: readonly { readonly ip: Ip; readonly port: number }[]
}
/** Translates as the rules of Services do. Undefined for an address and port of no Service. */
export type Translate = (destination: Ip, protocol: Protocol, port: number) => Translated | undefined

/** What the API objects say about a connection. */
export interface Decision {
  readonly source: Ip
  /** The address and the port after translation. */
  readonly destination: Ip
  readonly port: number
  /** What Services do with the packets, in words. Absent when the address is no Service's. */
  readonly service?: string
  /** The rules of Services refuse the packets: those of policy never see them. */
  readonly isRefusedByService?: true
  /** The decision of all nodes together. */
  readonly verdict: Verdict
  /** The part of this node's kernel: a pod's node decides its directions. */
  readonly here: Verdict
  readonly isAudit: boolean
  /** The end that is the node itself. Its own packets to pods meet no rule. */
  readonly node?: 'source' | 'destination'
}

/** The most pods that one rule names. */
const MOST_PODS = 100

/** The pods of this node, sorted by name. */
export function summaries({ cluster, state }: PolicyKnowledge): PodSummary[] {
  return [...state.locals]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, { ips, isClosed }]) => ({
      pod: key,
      addresses: ips,
      isClosed,
      ingress: namesFor(cluster, key, 'ingress'),
      egress: namesFor(cluster, key, 'egress'),
    }))
}

/** The addresses of pods of other nodes by their node, of at most so many pods of each. Pods of the node's network have none. */
export function podsOfOthers({ cluster, state }: PolicyKnowledge, most: number): Record<string, readonly Ip[]> {
  const found = new Map<string, Pod[]>()
  for (const [key, pod] of cluster.pods) {
    if (pod.node === undefined || pod.ips.length === 0 || state.locals.has(key)) continue
    const all = found.get(pod.node) ?? []
    found.set(pod.node, all)
    if (all.length < most) all.push(pod)
  }
  return Object.fromEntries([...found].map(([node, pods]) => [node, pods.flatMap(({ ips }) => ips)]))
}

/** How many policies there are, and how many pods of this node they select. */
export function numbersOf({ cluster, state }: Pick<PolicyKnowledge, 'cluster' | 'state'>) {
  const locals = [...state.locals.values()]
  const [ingress, egress] = SIDES.map((side) => locals.filter(({ chains }) => chains[side] !== undefined).length)
  return {
    policies: cluster.policies.size,
    clusterPolicies: cluster.clusterPolicies.size,
    pods: locals.length,
    selected: { ingress: ingress ?? 0, egress: egress ?? 0 },
    closed: locals.filter(({ isClosed }) => isClosed).length,
  }
}

/** One pod of this node with its rules. Throws ValueError for a pod that is not of this node. */
export function detail({ cluster, state }: PolicyKnowledge, key: string): PodDetail {
  const local = state.locals.get(key)
  if (!local) throw new ValueError(`There is no pod ${key} on this node: want one of plumb policy`)
  const { ips, isClosed } = local
  return {
    pod: key,
    addresses: ips,
    isClosed,
    ingress: sideOf(cluster, key, 'ingress'),
    egress: sideOf(cluster, key, 'egress'),
  }
}

/** The objects as the oracle takes them. */
export function objectsOf({ pods, namespaces, policies, clusterPolicies, nodes }: Cluster): Objects {
  return {
    pods: [...pods.values()],
    namespaces: [...namespaces.values()],
    policies: [...policies.values()],
    clusterPolicies: [...clusterPolicies.values()],
    nodes: [...nodes.values()],
  }
}

/**
 * Decides a connection by the API objects. Packets to a Service are translated first: when its endpoints differ, one
 * that is refused counts. Throws ValueError for an end that is no known pod and no address.
 */
export function decision(known: PolicyKnowledge, asked: Asked, translate: Translate = () => undefined): Decision {
  const { from, to, protocol, port } = asked
  if ((port === 0) !== (protocol === 'ICMP'))
    throw new ValueError(`Port ${port} of ${protocol} is no port: want 1 to 65535, and 0 for ICMP`)
  const translated = to.includes('/') || protocol === 'ICMP' ? undefined : translate(parseIp(to), protocol, port)
  if (translated === undefined) return direct(known, asked)
  const { what, endpoints } = translated
  if (endpoints.length === 0) {
    const destination = parseIp(to)
    const source = endsOf(known, from).ips.find((ip) => isSix(ip) === isSix(destination))
    if (source === undefined) throw ofTwoFamilies(asked)
    const verdict: Verdict = { passes: false, reason: `${what}: the rules of Services refuse it` }
    const connection = { source, destination, port }
    return { ...connection, verdict, here: verdict, isAudit: false, service: what, isRefusedByService: true }
  }
  const all = endpoints.map((one) => direct(known, { from, to: one.ip, protocol, port: one.port }))
  const refused = all.filter(({ verdict }) => !verdict.passes)
  const isSplit = refused.length > 0 && refused.length < all.length
  const count = `${all.length} ${all.length === 1 ? 'endpoint' : 'endpoints'}`
  const counts = isSplit ? `${count}, ${refused.length} of them refused` : count
  return { ...((refused[0] ?? all[0]) as Decision), service: `${what}: ${counts}` }
}

function ofTwoFamilies({ from, to }: Asked): ValueError {
  return new ValueError(`${from} and ${to} have no addresses of one family: want two addresses of IPv4, or two of IPv6`)
}

/** Decides a connection by the API objects, without Services. Throws ValueError as `decision`. */
export function direct(known: PolicyKnowledge, asked: Asked): Decision {
  const { from, to, protocol, port } = asked
  const [sources, destinations] = [endsOf(known, from), endsOf(known, to)]
  const source = sources.ips.find((ip) => destinations.ips.some((other) => isSix(other) === isSix(ip)))
  const destination = destinations.ips.find((ip) => source !== undefined && isSix(ip) === isSix(source))
  if (source === undefined || destination === undefined) throw ofTwoFamilies(asked)
  const own = addressesOfNode()
  const node = own.has(source) ? ('source' as const) : own.has(destination) ? ('destination' as const) : undefined
  const ends = { from: sources.end ?? { ip: source }, to: destinations.end ?? { ip: destination } }
  const attempt = { ...ends, source, destination, protocol: protocol === 'ICMP' ? ('other' as const) : protocol, port }
  const isLocal = (end: End) => 'name' in end && known.state.locals.has(`${end.namespace}/${end.name}`)
  const hereSides = SIDES.filter((side) => isLocal(side === 'egress' ? attempt.from : attempt.to))
  const closed = closedBy(known, [source, destination], own)
  const objects = objectsOf(known.cluster)
  const isToOwnPod = node === 'source' && isLocal(attempt.to)
  const free = isToOwnPod ? FROM_ITS_NODE : undefined
  const verdict = closed ?? free ?? decide(objects, attempt)
  const here = closed ?? free ?? decide(objects, attempt, hereSides)
  return { source, destination, port, verdict, here, isAudit: known.isAudit, ...(node && { node }) }
}

function endsOf(
  { cluster, state }: PolicyKnowledge,
  text: string,
): { readonly ips: readonly Ip[]; readonly end?: Pod } {
  if (!text.includes('/')) {
    const ip = parseIp(text)
    const pod = state.podAt(ip)
    return { ips: [ip], ...(pod && { end: pod }) }
  }
  const pod = cluster.pods.get(text)
  if (!pod)
    throw new ValueError(
      `There is no pod ${text} with a network of its own: want NAMESPACE/NAME of a pod that runs, or an address`,
    )
  const ips = state.locals.get(text)?.ips ?? pod.ips
  if (ips.length === 0) throw new ValueError(`The pod ${text} has no address yet`)
  return { ips, end: pod }
}

// The addresses of the node's subnet that belong to no known pod are closed.
function closedBy({ state, subnets }: PolicyKnowledge, ends: readonly Ip[], own: ReadonlySet<Ip>): Verdict | undefined {
  for (const ip of ends) {
    const isClosed = [...state.locals.values()].some((local) => local.isClosed && local.ips.includes(ip))
    if (isClosed) return closedVerdict(ip)
    const isUnknown = !own.has(ip) && !state.podAt(ip)
    if (!isUnknown || !subnets.some((subnet) => contains(subnet, ip))) continue
    const reason = `${ip} is an address of this node's subnet and belongs to no known pod: it is closed`
    return { passes: false, reason }
  }
  return undefined
}

/** The verdict on packets from and to a pod that is closed. `ip` is its address. */
export function closedVerdict(ip: Ip): Verdict {
  return { passes: false, reason: `${ip} belongs to a pod whose object or namespace is not known yet: it is closed` }
}

/** The addresses of this node. Its packets to a pod have one of them that its Node object may lack. */
export function addressesOfNode(): ReadonlySet<Ip> {
  return new Set([...localAddresses(4), ...localAddresses(6)])
}

function policiesOf({ pods, policies }: Cluster, key: string, side: Side): Policy[] {
  const pod = pods.get(key)
  if (!pod) return []
  const found = [...policies.values()].filter(
    (one) => one.namespace === pod.namespace && one[side] !== undefined && matches(one.pods, pod.labels),
  )
  return found.sort((a, b) => (a.name < b.name ? -1 : 1))
}

function tiersOf(cluster: Cluster, key: string, side: Side, tier: ClusterPolicy['tier']): ClusterPolicy[] {
  const { pods, namespaces, clusterPolicies } = cluster
  const pod = pods.get(key)
  const home = namespaces.get(pod?.namespace ?? '')
  if (!pod || !home) return []
  const found = [...clusterPolicies.values()].filter((one) => {
    if (one.tier !== tier || one[side].length === 0) return false
    return matches(one.subject.namespaces, home.labels) && matches(one.subject.pods, pod.labels)
  })
  return found.sort((a, b) => a.priority - b.priority || (a.name < b.name ? -1 : 1))
}

function namesFor(cluster: Cluster, key: string, side: Side): string[] {
  const own = policiesOf(cluster, key, side)
  const admin = tiersOf(cluster, key, side, 'Admin')
  const baseline = own.length > 0 ? [] : tiersOf(cluster, key, side, 'Baseline')
  return [
    ...own.map(({ namespace, name }) => `${namespace}/${name}`),
    ...[...admin, ...baseline].map(({ name, tier }) => `ClusterNetworkPolicy ${name} (${tier})`),
  ]
}

// The tier Baseline decides only for pods that no NetworkPolicy isolates.
function sideOf(cluster: Cluster, key: string, side: Side): SideView {
  const own = policiesOf(cluster, key, side)
  const ofTier = (tier: ClusterPolicy['tier']) =>
    tiersOf(cluster, key, side, tier).flatMap((one) =>
      one[side].map((rule, i) => tierRuleView(cluster, one, rule, side, i)),
    )
  const rules = own.flatMap((policy) => (policy[side] ?? []).map((rule, i) => ruleView(cluster, policy, rule, side, i)))
  return {
    isolatedBy: own.map(({ namespace, name }) => `${namespace}/${name}`),
    rules: [...ofTier('Admin'), ...rules, ...(own.length > 0 ? [] : ofTier('Baseline'))],
  }
}

function ruleView(cluster: Cluster, policy: Policy, { peers, ports }: Rule, side: Side, i: number): RuleView {
  const { namespace, name } = policy
  const isPeer = (peer: Peer, pod: Pod) => {
    if ('cidr' in peer || !matches(peer.pods, pod.labels)) return false
    return peer.namespaces === undefined ? pod.namespace === namespace : isIn(cluster, peer.namespaces, pod)
  }
  const words = (peer: Peer) => {
    if (!('cidr' in peer)) return podWords(peer.pods, peer.namespaces, namespace)
    return peer.except.length === 0 ? peer.cidr : `${peer.cidr} except ${peer.except.join(', ')}`
  }
  return {
    rule: `${namespace}/${name} ${side}[${i}]`,
    action: 'Accept',
    peers: peers?.map(words) ?? ['everyone'],
    ports: portWords(ports),
    pods: podsOf(cluster, peers, isPeer),
  }
}

function tierRuleView(cluster: Cluster, policy: ClusterPolicy, rule: TierRule, side: Side, i: number): RuleView {
  const { name, tier } = policy
  const isPeer = (peer: TierPeer, pod: Pod) =>
    'pods' in peer && matches(peer.pods, pod.labels) && isIn(cluster, peer.namespaces, pod)
  const words = (peer: TierPeer) => {
    if ('cidr' in peer) return peer.cidr
    return 'nodes' in peer ? `nodes ${selectorWords(peer.nodes)}` : podWords(peer.pods, peer.namespaces)
  }
  const label = rule.name === undefined ? '' : ` "${rule.name}"`
  return {
    rule: `ClusterNetworkPolicy ${name} (${tier}) ${side}[${i}]${label}`,
    action: rule.action,
    peers: rule.peers?.map(words) ?? ['everyone'],
    ports: portWords(rule.ports),
    pods: podsOf(cluster, rule.peers, isPeer),
  }
}

function isIn({ namespaces }: Cluster, selector: Selector, { namespace }: Pod): boolean {
  const home = namespaces.get(namespace)
  return home !== undefined && matches(selector, home.labels)
}

function podsOf<P>(
  { pods }: Cluster,
  peers: readonly P[] | undefined,
  isPeer: (peer: P, pod: Pod) => boolean,
): string[] {
  const found: string[] = []
  for (const [key, pod] of pods)
    if (found.length < MOST_PODS && peers?.some((peer) => isPeer(peer, pod))) found.push(key)
  return found.sort()
}

function podWords(pods: Selector, namespaces: Selector | undefined, home = ''): string {
  const which = pods.length === 0 ? 'all pods' : `pods ${selectorWords(pods)}`
  if (namespaces === undefined) return `${which} of namespace ${home}`
  return namespaces.length === 0 ? `${which} of all namespaces` : `${which} of namespaces ${selectorWords(namespaces)}`
}

function selectorWords(selector: Selector): string {
  return selector.length === 0 ? 'of all labels' : selector.map(requirementWords).join(', ')
}

function requirementWords({ key, operator, values }: Requirement): string {
  if (operator === 'Exists') return key
  if (operator === 'DoesNotExist') return `!${key}`
  if (operator === 'In' && values.length === 1) return `${key}=${values[0]}`
  return `${key} ${operator === 'In' ? 'in' : 'not in'} (${values.join(', ')})`
}

function portWords(ports: readonly Port[] | undefined): string[] {
  if (ports === undefined) return ['all ports']
  return ports.map((one) => `${one.protocol} ${one.name ?? numberWords(one)}`)
}

function numberWords({ from, to = from }: Port): string {
  if (from === undefined) return 'all ports'
  return to === from ? `${from}` : `${from}-${to}`
}
