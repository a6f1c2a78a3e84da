// Services as data of nft, for one node. `endpoints.ts` chooses the endpoints of a port, `compile.ts` compiles a Service,
// and `wanted-elements.ts` decides between Services. `program.ts` takes the result to the kernel, and `view.ts` shows it.
// Begin with `ServicesState`.
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { ChangedKeys } from '../cluster/changes.ts'
import type { KindName } from '../cluster/kinds.ts'
import type { Service, Slice } from '../cluster/services.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { Elements } from '../kernel/elements.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import { addressesOf } from './addresses.ts'
import { type CompiledService, compile } from './compile.ts'
import type { NodeFacts } from './endpoints.ts'
import { type Addresses, SHAPES, TABLE, type TableOptions } from './table.ts'
import { type ChangedFrontends, WantedElements } from './wanted-elements.ts'

/** The kinds of objects that Services are about. The Node of this name gives the zone. */
export const SERVICE_KINDS = ['services', 'slices', 'nodes', 'serviceCidrs'] as const satisfies readonly KindName[]
/** Services are served without the others. */
const NEEDED: readonly KindName[] = ['services', 'slices', 'nodes']
/** What is known of the cluster. */
export type Known = Pick<ObjectSource, 'objects' | 'isComplete' | 'trouble' | 'refused'>
/** What the addresses depend on besides objects. */
export interface ServicesOptions extends Pick<TableOptions, 'nodePortAddresses' | 'clusterCidrs'> {
  /** Networks of ClusterIPs, besides those of the ServiceCIDR objects. */
  readonly serviceCidrs: readonly Cidr[]
}

const ZONE = 'topology.kubernetes.io/zone'
/** Nodes with this label serve no clients from outside (Kubernetes, KEP 1143). */
const EXCLUDED = 'node.kubernetes.io/exclude-from-external-load-balancers'
/** The most elements in one transaction. A quarter of a million endpoints would else take nft 600 MB. */
const MOST = 50_000
/** The maps with one element per endpoint of a frontend. */
const ENDPOINT_MAPS = Object.keys(SHAPES).filter((name) => /^(port)?(eps|sel)/.test(name))

/**
 * What a node needs of the kernel for all Services. `apply` compiles only the Services whose objects changed. It holds
 * the elements of the table, and sends nothing itself.
 */
export class ServicesState {
  readonly elements = new Elements(TABLE, SHAPES, { most: MOST })
  readonly wanted = new WantedElements(this.elements)
  readonly #known: Known
  readonly #options: ServicesOptions
  readonly #networks: readonly Cidr[]
  #node: NodeFacts
  /** The slices of each Service, by keys, and the Service of each slice. */
  readonly #slices = new Map<string, Set<string>>()
  readonly #owners = new Map<string, string>()
  /** When the changes of slices happened that nobody took yet: the first one of each slice. */
  readonly #triggered = new Map<string, number>()

  /** `node` is the name of this node, and `networks` are those of all pods. */
  constructor(known: Known, node: string, options: ServicesOptions, networks: readonly Cidr[]) {
    this.#known = known
    this.#node = { name: node }
    this.#options = options
    this.#networks = networks
  }

  /** Whether all objects are known that Services need. */
  get isKnown(): boolean {
    return this.#known.isComplete(NEEDED)
  }

  /** Why the objects that Services need are not known, or may be out of date. Undefined when they are. */
  get trouble(): string | undefined {
    return this.#known.trouble(NEEDED)
  }

  /** The objects that nobody can read, one sentence each. */
  get refused(): readonly string[] {
    return this.#known.refused(SERVICE_KINDS)
  }

  /** The Services, by `namespace/name`. */
  get services(): ReadonlyMap<string, Service> {
    return this.#known.objects.services
  }

  /** What the endpoints depend on besides their Services. */
  get node(): NodeFacts {
    return this.#node
  }

  /** Whether this node serves clients from outside. */
  get isForOutside(): boolean {
    return this.#known.objects.nodes.get(this.#node.name)?.labels[EXCLUDED] === undefined
  }

  /** Whether this node goes soon, and wants no new connections. */
  get isLeaving(): boolean {
    return this.#known.objects.nodes.get(this.#node.name)?.isLeaving === true
  }

  /** Takes over changed objects. Gives the frontends that changed. */
  apply(changed: ChangedKeys): ChangedFrontends {
    const dirty = new Set(changed.get('services'))
    for (const key of changed.get('slices') ?? []) for (const service of this.#sliceChanged(key)) dirty.add(service)
    if (this.#takeNode()) for (const key of this.#known.objects.services.keys()) dirty.add(key)
    const next = new Map<string, CompiledService | undefined>()
    for (const key of dirty) {
      const service = this.#known.objects.services.get(key)
      next.set(key, service && compile(service, this.slicesOf(key), this.#node, this.wanted.of(key)))
      if (this.#slices.get(key)?.size === 0) this.#slices.delete(key)
    }
    return this.wanted.update(next)
  }

  /** The slices of a Service, by `namespace/name`, in the order of their names. */
  slicesOf(service: string): Slice[] {
    return [...(this.#slices.get(service) ?? [])].sort().flatMap((one) => this.#known.objects.slices.get(one) ?? [])
  }

  /**
   * When the changes of slices happened that came since the last call: the first one of each slice. Milliseconds since
   * 1970.
   */
  takeTriggered(): number[] {
    const all = [...this.#triggered.values()]
    this.#triggered.clear()
    return all
  }

  /**
   * The addresses that the rules ask for, and what is wrong with them. `subnets` are those of this node's pods, and
   * `tunnel` has the addresses of its link to the other nodes, as far as they are known.
   */
  addresses(subnets: Both<Cidr> = {}, tunnel: Both<Ip> = {}): Addresses & ReturnType<typeof addressesOf> {
    const [known, options, networks, own] = [this.#known, this.#options, this.#networks, both(subnets)]
    return {
      own,
      inside: [...new Set([...own, ...networks, ...options.clusterCidrs])],
      ...addressesOf({
        options,
        objects: known.isComplete(['serviceCidrs']) ? known.objects.serviceCidrs.values() : undefined,
        trouble: known.trouble(['serviceCidrs']),
        pods: networks,
        node: this.#node,
        uplink: both(tunnel),
      }),
    }
  }

  /** The numbers of Services, of frontends, and of endpoints: once for each frontend that leads to them. */
  counts(): { readonly services: number; readonly frontends: number; readonly endpoints: number } {
    const endpoints = ENDPOINT_MAPS.reduce((sum, name) => sum + this.elements.size(name), 0)
    return { services: this.wanted.all.size, frontends: this.wanted.served.size, endpoints }
  }

  // Gives the Services that had the slice, and that have it now.
  #sliceChanged(key: string): string[] {
    const slice = this.#known.objects.slices.get(key)
    if (slice === undefined) this.#triggered.delete(key)
    else if (slice.triggeredAt !== undefined && !this.#triggered.has(key)) this.#triggered.set(key, slice.triggeredAt)
    const [before, owner] = [this.#owners.get(key), slice && `${slice.namespace}/${slice.service}`]
    if (before !== undefined && before !== owner) this.#slices.get(before)?.delete(key)
    if (owner === undefined) this.#owners.delete(key)
    else {
      this.#owners.set(key, owner)
      this.#slices.set(owner, (this.#slices.get(owner) ?? new Set()).add(key))
    }
    return [before, owner].filter((one) => one !== undefined)
  }

  // Tells whether this node has other facts than before.
  #takeNode(): boolean {
    const { name } = this.#node
    const { labels, ips } = this.#known.objects.nodes.get(name) ?? {}
    const now = { name, ...(labels?.[ZONE] !== undefined && { zone: labels[ZONE] }), ...(ips && { ips }) }
    if (Bun.deepEquals(now, this.#node)) return false
    this.#node = now
    return true
  }
}
