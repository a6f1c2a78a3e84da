import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { ClusterNode, Namespace } from '../cluster/objects.ts'
import type { Protocol, Selector } from '../cluster/reading.ts'
import type { Elements } from '../kernel/elements.ts'
import { digest } from './digest.ts'
import type { Item } from './items.ts'
import type { KnownPod, KnownPods } from './known-pods.ts'
import { matches } from './matching.ts'
import { type Family, NAME, TYPE } from './table.ts'

/** Pods by their labels, and by the labels of their namespaces or the one namespace that they are in. */
export interface PeerSelector {
  readonly pods: Selector
  readonly namespaces: Selector | string
}

/** The elements that a pod has in a set: none when the set does not select it. */
type ElementsOf = (pod: KnownPod) => readonly string[]

interface PodSet {
  readonly name: string
  readonly elementsOf: ElementsOf
  /** A tier names it: it may deny those who come into the set. NetworkPolicy only allows. */
  readonly isOfTier: boolean
  /** The selector of namespaces, and those that it selects now. Absent for a set of one namespace. */
  readonly wide?: { readonly selector: Selector; readonly homes: Set<string> }
}

/**
 * The sets of addresses that rules name: pods by selectors, named ports, nodes by labels. A set is of a selector, and
 * all policies with that selector share it. A pod that comes or goes changes elements, and no rule. Sets that no rule
 * names have no elements.
 */
export class PeerSets {
  readonly #pods: KnownPods
  readonly #namespaces: ReadonlyMap<string, Namespace>
  readonly #nodes: ReadonlyMap<string, ClusterNode>
  readonly #elements: Elements
  /** The sets in use: those of all namespaces, those of one by its name, and those of nodes. */
  readonly #wide = new Map<string, PodSet>()
  readonly #narrow = new Map<string, Map<string, PodSet>>()
  readonly #ofNodes = new Map<string, { readonly selector: Selector; readonly family: Family }>()
  readonly #knownNodes = new Map<string, ClusterNode>()
  #tightened = new Set<Ip>()

  constructor(
    pods: KnownPods,
    namespaces: ReadonlyMap<string, Namespace>,
    nodes: ReadonlyMap<string, ClusterNode>,
    elements: Elements,
  ) {
    this.#pods = pods
    this.#namespaces = namespaces
    this.#nodes = nodes
    this.#elements = elements
  }

  /** The set of the pods that a selector selects. Rules of tiers and those of NetworkPolicy have sets of their own. */
  pods({ pods, namespaces }: PeerSelector, family: Family, isOfTier: boolean): Item {
    const name = `${isOfTier ? 'tier_' : ''}pods${family}_${digest(JSON.stringify([namespaces, pods]))}`
    const addresses = (pod: KnownPod) => (matches(pods, pod.pod.labels) ? ofFamily(pod.ips, family) : [])
    if (typeof namespaces === 'string') {
      const elementsOf: ElementsOf = (pod) => (pod.pod.namespace === namespaces ? addresses(pod) : [])
      return this.#item(name, [TYPE[family]], { name, isOfTier, elementsOf }, namespaces)
    }
    const homes = new Set<string>()
    return this.#item(name, [TYPE[family]], {
      name,
      isOfTier,
      elementsOf: (pod) => (homes.has(pod.pod.namespace) ? addresses(pod) : []),
      wide: { selector: namespaces, homes },
    })
  }

  /** The set of the addresses and ports that have one of some names, in all pods. */
  ports(given: readonly string[], protocol: Protocol, family: Family, isOfTier: boolean): Item {
    const names = new Set(given)
    const set = `${isOfTier ? 'tier_' : ''}ports${family}_${digest(`${[...names].sort().join(' ')} ${protocol}`)}`
    const elementsOf = ({ pod: { ports }, ips }: KnownPod) =>
      ports
        .filter((one) => names.has(one.name) && one.protocol === protocol)
        .flatMap(({ port }) => ofFamily(ips, family).map((ip) => `${ip} . ${port}`))
    return this.#item(set, [TYPE[family], 'inet_service'], { name: set, isOfTier, elementsOf })
  }

  /** The set of the addresses of the nodes that a selector selects. */
  nodes(selector: Selector, family: Family): Item {
    const name = `nodes${family}_${digest(JSON.stringify(selector))}`
    return {
      name,
      kind: 'set',
      make: [`add set ${NAME} ${name} { type ${TYPE[family]}; }`],
      needs: [],
      begin: () => {
        this.#elements.define(name, { key: [TYPE[family]] })
        this.#ofNodes.set(name, { selector, family })
        this.#fillNodes(name)
      },
      end: () => {
        this.#ofNodes.delete(name)
        this.#elements.drop(name)
      },
    }
  }

  #item(name: string, key: readonly ('ipv4_addr' | 'ipv6_addr' | 'inet_service')[], set: PodSet, home?: string): Item {
    return {
      name,
      kind: 'set',
      make: [`add set ${NAME} ${name} { type ${key.join(' . ')}; }`],
      needs: [],
      begin: () => {
        this.#elements.define(name, { key })
        if (home === undefined) this.#wide.set(name, set)
        else this.#narrow.set(home, (this.#narrow.get(home) ?? new Map()).set(name, set))
        set.wide?.homes.clear()
        if (set.wide)
          for (const one of this.#namespaces.values())
            if (matches(set.wide.selector, one.labels)) set.wide.homes.add(one.name)
        for (const pod of this.#candidates(set, home))
          for (const element of set.elementsOf(pod)) this.#elements.put(name, element)
      },
      end: () => {
        this.#wide.delete(name)
        const narrow = home === undefined ? undefined : this.#narrow.get(home)
        narrow?.delete(name)
        if (home !== undefined && narrow?.size === 0) this.#narrow.delete(home)
        this.#elements.drop(name)
      },
    }
  }

  *#candidates({ wide }: PodSet, home: string | undefined): Generator<KnownPod> {
    if (home !== undefined) yield* this.#pods.of(home)
    else if (wide) for (const namespace of wide.homes) yield* this.#pods.of(namespace)
    else yield* this.#pods.all()
  }

  /** Takes over a pod that has changed. `KnownPods` has its new value already. */
  podChanged(before: KnownPod | undefined, now: KnownPod | undefined): void {
    const narrow = new Set([before, now].flatMap((one) => (one ? [one.pod.namespace] : [])))
    const sets = [
      ...this.#wide.values(),
      ...[...narrow].flatMap((namespace) => [...(this.#narrow.get(namespace)?.values() ?? [])]),
    ]
    for (const set of sets)
      this.#move(set, before ? set.elementsOf(before) : [], now ? set.elementsOf(now) : [], before)
  }

  /** Takes over a namespace that has changed, came or went. */
  namespaceChanged(name: string): void {
    const labels = this.#namespaces.get(name)?.labels
    for (const set of this.#wide.values()) {
      if (!set.wide) continue
      const { selector, homes } = set.wide
      const isHome = labels !== undefined && matches(selector, labels)
      if (isHome === homes.has(name)) continue
      const elements = () => [...this.#pods.of(name)].map((pod) => ({ pod, elements: set.elementsOf(pod) }))
      const before = isHome ? [] : elements()
      if (isHome) homes.add(name)
      else homes.delete(name)
      for (const one of before) this.#move(set, one.elements, [], one.pod)
      if (isHome) for (const one of elements()) this.#move(set, [], one.elements, one.pod)
    }
  }

  /** Takes over a node that has changed, came or went. */
  nodeChanged(name: string): void {
    const [before, now] = [this.#knownNodes.get(name), this.#nodes.get(name)]
    if (now) this.#knownNodes.set(name, now)
    else this.#knownNodes.delete(name)
    // A node reaches its own pods. What has left it does not.
    for (const ip of before?.ips ?? []) if (!now?.ips.includes(ip)) this.#tightened.add(ip)
    if (before || now) for (const set of this.#ofNodes.keys()) this.#fillNodes(set)
  }

  #fillNodes(name: string): void {
    const { selector, family } = this.#ofNodes.get(name) as { selector: Selector; family: Family }
    const nodes = [...this.#nodes.values()].filter(({ labels }) => matches(selector, labels))
    const wanted = new Set(nodes.flatMap(({ ips }) => ofFamily(ips, family)))
    for (const ip of [...this.#elements.wanted(name).keys()]) {
      if (wanted.has(ip as Ip)) continue
      this.#elements.remove(name, ip)
      this.#tightened.add(ip as Ip)
    }
    for (const ip of wanted) {
      if (!this.#elements.wanted(name).has(ip)) this.#tightened.add(ip)
      this.#elements.put(name, ip)
    }
  }

  #move(set: PodSet, before: readonly string[], now: readonly string[], pod: KnownPod | undefined): void {
    for (const element of before) {
      if (now.includes(element)) continue
      this.#tightened.add(addressIn(element))
      // Another pod may have the address already, while the object of this one is late to go.
      const others = [...this.#pods.at(addressIn(element))].filter(({ key }) => key !== pod?.key)
      if (!others.some((other) => set.elementsOf(other).includes(element))) this.#elements.remove(set.name, element)
    }
    for (const element of now) {
      if (set.isOfTier && !before.includes(element)) this.#tightened.add(addressIn(element))
      this.#elements.put(set.name, element)
    }
  }

  /**
   * The addresses that left a set since the last call, or came into one of a tier. A connection of theirs may no longer
   * be allowed.
   */
  takeTightened(): ReadonlySet<Ip> {
    const all = this.#tightened
    this.#tightened = new Set()
    return all
  }
}

// `10.244.1.2`, or `10.244.1.2 . 80`.
function addressIn(element: string): Ip {
  return element.split(' ', 1)[0] as Ip
}

function ofFamily(ips: readonly Ip[], family: Family): readonly Ip[] {
  return ips.filter((ip) => isSix(ip) === (family === 6))
}
