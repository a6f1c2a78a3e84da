// NetworkPolicy and ClusterNetworkPolicy as data of nft, for the pods of one node. A pod's address leads through a map
// to the chain of its set of policies. Pods with the same policies share it. Begin with `PolicyState`.
import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { ChangedKeys } from '../cluster/changes.ts'
import type { ClusterPolicy } from '../cluster/cluster-policy.ts'
import type { KindName, Objects } from '../cluster/kinds.ts'
import type { Pod, Policy } from '../cluster/objects.ts'
import { Elements } from '../kernel/elements.ts'
import { Endpoints, podKey } from './endpoints.ts'
import { type Item, Items } from './items.ts'
import { type KnownPod, KnownPods } from './known-pods.ts'
import { matches } from './matching.ts'
import { PeerSets } from './peer-sets.ts'
import { type Counted, type CounterItem, policyChain, setChain, tierChain } from './rules.ts'
import { type MapName, NAME, PASSES, SHAPES, SIDES, type Side, TABLE } from './table.ts'

/** The kinds of objects that policies are about. */
export const POLICY_KINDS = [
  'pods',
  'namespaces',
  'policies',
  'clusterPolicies',
  'nodes',
] as const satisfies readonly KindName[]
/** The objects that policies are about. */
export type Cluster = Pick<Objects, (typeof POLICY_KINDS)[number]>

/** What ADD has announced of the pods of this node. */
export type Attached = Pick<Endpoints, 'of' | 'addressesOf' | 'ownerOf' | 'objectGone' | 'strangersOf'>

/** A pod of this node. */
interface LocalPod {
  readonly ips: readonly Ip[]
  readonly chains: Readonly<Partial<Record<Side, Item>>>
  /** Its namespace is not known yet, or ADD has announced it and its object is not: all of its packets are refused. */
  readonly isClosed: boolean
}

/**
 * What the kernel has to have, kept up to date by the keys of changed objects: a step costs what changed. It holds the
 * elements and items of the table, and sends nothing itself.
 */
export class PolicyState {
  readonly elements: Elements
  readonly items = new Items(NAME)
  readonly #cluster: Cluster
  readonly #node: string
  readonly #attached: Attached
  readonly #pods = new KnownPods()
  readonly #sets: PeerSets
  readonly #policies = new Map<string, Map<string, Policy>>()
  readonly #chains = new WeakMap<Policy, Partial<Record<Side, Item>>>()
  #clusterPolicies: readonly ClusterPolicy[] = []
  /** The chains of tiers, by direction, tier and names of the policies. Emptied when one of them changes. */
  readonly #tiers = new Map<string, { readonly chain: Item | undefined }>()
  readonly #locals = new Map<string, LocalPod>()
  readonly #localsAt = new Map<Ip, Set<string>>()
  /**
   * The addresses of objects that do not count because ADD gave them to another pod, by pod, and the pods by address.
   */
  readonly #withheld = new Map<string, readonly Ip[]>()
  readonly #withholders = new Map<Ip, Set<string>>()
  #tightened = new Set<Ip>()

  constructor(
    cluster: Cluster,
    node: string,
    attached: Attached = new Endpoints(noChange, (key) => cluster.pods.get(key)),
  ) {
    this.elements = new Elements(TABLE, SHAPES)
    this.#cluster = cluster
    this.#node = node
    this.#attached = attached
    this.#sets = new PeerSets(this.#pods, cluster.namespaces, cluster.nodes, this.elements)
  }

  /** Takes over changed objects, and pods with other admitted addresses (keys of `pods`). */
  apply(changed: ChangedKeys): void {
    const dirty = new Set<string>()
    // A pod that gets or gives back an address concerns other pods that have it, too.
    const pods = new Set(changed.get('pods'))
    for (const key of pods) {
      for (const other of this.#podChanged(key)) pods.add(other)
      dirty.add(key)
    }
    const namespaces = new Set(changed.get('namespaces'))
    for (const name of namespaces) this.#sets.namespaceChanged(name)
    for (const name of changed.get('nodes') ?? []) this.#sets.nodeChanged(name)
    const homes = new Set<string>()
    for (const key of changed.get('policies') ?? []) homes.add(this.#policyChanged(key))
    const isEverywhere = (changed.get('clusterPolicies')?.size ?? 0) > 0
    if (isEverywhere) {
      this.#clusterPolicies = [...this.#cluster.clusterPolicies.values()].sort(inOrder)
      this.#tiers.clear()
    }
    // The labels of a namespace decide which policies of the cluster are about its pods.
    for (const name of namespaces) homes.add(name)
    for (const key of this.#locals.keys()) if (isEverywhere || homes.has(namespaceIn(key))) dirty.add(key)
    for (const key of dirty) this.#localChanged(key)
  }

  /** The addresses of pods that may be allowed less since the last call. */
  takeTightened(): ReadonlySet<Ip> {
    const all = new Set([...this.#tightened, ...this.#sets.takeTightened()])
    this.#tightened = new Set()
    return all
  }

  /** The pods of this node, by key, with the addresses that count. */
  get locals(): ReadonlyMap<
    string,
    {
      readonly ips: readonly Ip[]
      readonly chains: Readonly<Partial<Record<Side, { readonly name: string }>>>
      readonly isClosed: boolean
    }
  > {
    return this.#locals
  }

  /**
   * The pod that has an address. Of two objects with one address it is that of this node, as in the maps, else the latest
   * one.
   */
  podAt(ip: Ip): Pod | undefined {
    const [all, local] = [[...this.#pods.at(ip)], this.#localKeyAt(ip)]
    return (all.find(({ key }) => key === local) ?? all.at(-1))?.pod
  }

  /** All addresses of pods of this node count as tightened: nobody knows what has passed. */
  tightenAll(): void {
    for (const ip of this.#localsAt.keys()) this.#tightened.add(ip)
  }

  /** Whether an address is that of a pod of this node. */
  isLocal(ip: Ip): boolean {
    return this.#localsAt.has(ip)
  }

  /** Whether an address is that of a pod of this node whose object, or whose namespace, is not known. */
  isClosed(ip: Ip): boolean {
    return this.#localAt(ip)?.isClosed === true
  }

  /** What the counters of the table count, by name. */
  counted(): ReadonlyMap<string, Counted> {
    const counters = [...this.items.all()].filter(({ kind }) => kind === 'counter') as CounterItem[]
    return new Map(counters.map(({ name, counted }) => [name, counted]))
  }

  // Gives the other pods that this concerns.
  *#podChanged(key: string): Generator<string> {
    const pod = this.#cluster.pods.get(key)
    const attached = this.#attached.of(key)
    if (!pod) this.#attached.objectGone(key)
    // Another object of the name may be that of another one of its attachments.
    yield* this.#attached.strangersOf(key)
    const ips = pod ? this.#attached.addressesOf(pod) : []
    const now: KnownPod | undefined = pod && { key, pod, ips, isLocal: attached.length > 0 || pod.node === this.#node }
    const [before, local] = [this.#pods.get(key), this.#locals.get(key)]
    this.#pods.set(key, now)
    this.#sets.podChanged(before, now)
    for (const ip of this.#withheld.get(key) ?? []) this.#withholders.get(ip)?.delete(key)
    const withheld = pod?.ips.filter((ip) => !ips.includes(ip)) ?? []
    this.#withheld.delete(key)
    if (withheld.length > 0) this.#withheld.set(key, withheld)
    for (const ip of withheld) this.#withholders.set(ip, (this.#withholders.get(ip) ?? new Set()).add(key))
    for (const { addresses } of attached)
      for (const ip of addresses) for (const other of this.#pods.at(ip)) if (other.key !== key) yield other.key
    for (const ip of local?.ips ?? before?.ips ?? []) yield* this.#withholders.get(ip) ?? []
  }

  #policyChanged(key: string): string {
    const namespace = namespaceIn(key)
    const home = this.#policies.get(namespace) ?? new Map<string, Policy>()
    const policy = this.#cluster.policies.get(key)
    if (policy) home.set(key, policy)
    else home.delete(key)
    if (home.size > 0) this.#policies.set(namespace, home)
    else this.#policies.delete(namespace)
    return namespace
  }

  // Gives a pod of this node the chains of its policies, or takes them from a pod that is gone.
  #localChanged(key: string): void {
    const [before, now] = [this.#locals.get(key), this.#localPodOf(key)]
    for (const side of SIDES) if (now?.chains[side]) this.items.hold(now.chains[side])
    for (const side of SIDES) if (before?.chains[side]) this.items.release(before.chains[side])
    if (now) this.#locals.set(key, now)
    else this.#locals.delete(key)
    const isSame =
      before?.isClosed === now?.isClosed &&
      SIDES.every((side) => before?.chains[side]?.name === now?.chains[side]?.name)
    // An address that a pod gets or gives back begins without connections, whatever the policies are
    // (docs/decisions/0032).
    const has = (one: LocalPod | undefined, ip: Ip) => one?.ips.includes(ip) === true
    for (const ip of before?.ips ?? []) if (!has(now, ip)) this.#leave(ip, key)
    for (const ip of now?.ips ?? []) this.#localsAt.set(ip, (this.#localsAt.get(ip) ?? new Set()).add(key))
    for (const ip of new Set([...(before?.ips ?? []), ...(now?.ips ?? [])])) {
      this.#write(ip)
      if (!isSame || has(before, ip) !== has(now, ip)) this.#tightened.add(ip)
    }
  }

  #localPodOf(key: string): LocalPod | undefined {
    const pod = this.#pods.get(key)
    if (pod) return pod.isLocal ? { ips: pod.ips, ...this.#chainsOrClosed(pod) } : undefined
    const closed = this.#attached.of(key).flatMap(({ addresses }) => addresses)
    return closed.length > 0 ? { ips: closed, chains: {}, isClosed: true } : undefined
  }

  // A watch that lags may tell of a pod before its namespace. Without the namespace's labels nobody knows its policies.
  #chainsOrClosed(pod: KnownPod): Pick<LocalPod, 'chains' | 'isClosed'> {
    const isHomeKnown = this.#cluster.namespaces.has(pod.pod.namespace)
    return isHomeKnown ? { chains: this.#chainsOf(pod), isClosed: false } : { chains: {}, isClosed: true }
  }

  #leave(ip: Ip, key: string): void {
    const keys = this.#localsAt.get(ip)
    keys?.delete(key)
    if (keys?.size === 0) this.#localsAt.delete(ip)
  }

  // Two objects may have one address while one of them is late to go. The pod that ADD has admitted counts, else the
  // latest one.
  #localAt(ip: Ip): LocalPod | undefined {
    const key = this.#localKeyAt(ip)
    return key === undefined ? undefined : this.#locals.get(key)
  }

  #localKeyAt(ip: Ip): string | undefined {
    const keys = [...(this.#localsAt.get(ip) ?? [])]
    const owner = this.#attached.ownerOf(ip)
    return owner !== undefined && keys.includes(owner) ? owner : keys.at(-1)
  }

  #write(ip: Ip): void {
    const local = this.#localAt(ip)
    const family = isSix(ip) ? 6 : 4
    for (const side of SIDES) {
      const [map, chain]: [MapName, Item | undefined] = [`${side}${family}`, local?.chains[side]]
      if (local) this.elements.put(map, ip, local.isClosed ? 'goto unknown' : chain ? `goto ${chain.name}` : PASSES)
      else this.elements.remove(map, ip)
    }
    if (local) this.elements.put(`self${family}`, `${ip} . ${ip}`)
    else this.elements.remove(`self${family}`, `${ip} . ${ip}`)
  }

  #chainsOf({ pod }: KnownPod): LocalPod['chains'] {
    const policies = [...(this.#policies.get(pod.namespace) ?? [])]
      .filter(([, one]) => matches(one.pods, pod.labels))
      .sort(([a], [b]) => (a < b ? -1 : 1))
    const labels = this.#cluster.namespaces.get(pod.namespace)?.labels
    const selects = ({ subject }: ClusterPolicy) =>
      labels !== undefined && matches(subject.namespaces, labels) && matches(subject.pods, pod.labels)
    const tiers = this.#clusterPolicies.filter(selects)
    const chains: Partial<Record<Side, Item>> = {}
    for (const side of SIDES) {
      const own = policies.filter(([, one]) => one[side] !== undefined)
      const admin = this.#tier('Admin', side, tiers)
      const baseline = this.#tier('Baseline', side, tiers)
      if (own.length === 0 && !admin && !baseline) continue
      const ofPolicies = own.map(([name, one]) => ({ name, chain: this.#chain(one, side) }))
      chains[side] = setChain(side, admin, ofPolicies, baseline)
    }
    return chains
  }

  #chain(policy: Policy, side: Side): Item {
    const known = this.#chains.get(policy) ?? {}
    known[side] ??= policyChain(policy, side, this.#sets)
    this.#chains.set(policy, known)
    return known[side]
  }

  #tier(tier: ClusterPolicy['tier'], side: Side, all: readonly ClusterPolicy[]): Item | undefined {
    const own = all.filter((one) => one.tier === tier && one[side].length > 0)
    const key = `${tier} ${side} ${own.map(({ name }) => name).join(' ')}`
    const known = this.#tiers.get(key) ?? { chain: tierChain(own, side, this.#sets) }
    this.#tiers.set(key, known)
    return known.chain
  }
}

function noChange(): void {}

function namespaceIn(key: string): string {
  return key.slice(0, key.indexOf('/'))
}

// Policies with the same priority go by name, so that every node decides alike.
function inOrder(one: ClusterPolicy, other: ClusterPolicy): number {
  return one.priority - other.priority || (one.name < other.name ? -1 : 1)
}

/** All keys of all objects: the changes since nothing was known. */
export function everything(cluster: Cluster): ChangedKeys {
  return new Map(POLICY_KINDS.map((kind) => [kind, new Set(cluster[kind].keys())]))
}

/** Compiles objects as a whole, for the pods of one node. */
export function compile(cluster: Cluster, node: string, attached?: Endpoints): PolicyState {
  const state = new PolicyState(cluster, node, attached)
  const all = new Map(everything(cluster))
  all.set('pods', new Set([...(all.get('pods') ?? []), ...(attached?.all() ?? []).map(podKey)]))
  state.apply(all)
  return state
}
