// The objects of a history: what stands in the API, and the part that the agent can know. Begin with `World`.
import { clusterPolicyOf } from '../../../../agent/cluster/cluster-policy.ts'
import { clusterNodeOf, namespaceOf, type Pod, podOf, policyOf } from '../../../../agent/cluster/objects.ts'
import type { Objects } from '../../../../agent/policy/oracle.ts'
import type { Ip } from '../../../../lib/text/ip.ts'
import type { KubeServer, Raw } from '../../../support/kube-server.ts'

/** The kinds of objects of a history, by the path of the API's list. */
const LISTS = {
  Pod: '/api/v1/pods',
  Namespace: '/api/v1/namespaces',
  Node: '/api/v1/nodes',
  NetworkPolicy: '/apis/networking.k8s.io/v1/networkpolicies',
  ClusterNetworkPolicy: '/apis/policy.networking.k8s.io/*/clusternetworkpolicies',
  Service: '/api/v1/services',
  EndpointSlice: '/apis/discovery.k8s.io/v1/endpointslices',
} as const
export type Kind = keyof typeof LISTS
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
/** The versions of ClusterNetworkPolicy that an API may serve. The agent knows the first two. */
export const VERSIONS = ['v1alpha2', 'v1beta1', 'v2'] as const
type Metadata = { readonly namespace?: string; readonly name: string; readonly [key: string]: unknown }
/** An object without its kind. */
export type Draft = { readonly metadata: Metadata } & { readonly [key: string]: unknown }

/** What the agent knows of the cluster: objects by kind and key. */
export type Known = ReadonlyMap<string, Draft>

/** The objects of a cluster. They reach the agent at once, or when its watch no longer lags. */
export class World {
  readonly #server: KubeServer
  readonly #objects = new Map<string, Draft>()
  #late: { readonly kind: Kind; work(): void }[] = []
  #isLate = false
  #isServed = true

  constructor(server: KubeServer) {
    this.#server = server
    this.serve(['v1alpha2'])
  }

  /** The API serves ClusterNetworkPolicy in a version that the agent knows. */
  get isServed(): boolean {
    return this.#isServed
  }

  /** Serves ClusterNetworkPolicy in these versions alone. What happens to it meanwhile comes late in a version that nobody knows. */
  serve(versions: readonly (typeof VERSIONS)[number][]): void {
    this.#server.put(DEFINITIONS, {
      metadata: { name: 'clusternetworkpolicies.policy.networking.k8s.io' },
      spec: {
        group: 'policy.networking.k8s.io',
        scope: 'Cluster',
        names: { plural: 'clusternetworkpolicies', kind: 'ClusterNetworkPolicy' },
        versions: VERSIONS.map((name) => ({
          name,
          served: versions.includes(name),
          storage: name === versions.at(-1),
        })),
      },
    })
    this.#isServed = versions.some((one) => one !== 'v2')
    this.#flush()
  }

  #flush(): void {
    const isHeld = (kind: Kind) => this.#isLate || (kind === 'ClusterNetworkPolicy' && !this.#isServed)
    const due = this.#late.filter(({ kind }) => !isHeld(kind))
    this.#late = this.#late.filter(({ kind }) => isHeld(kind))
    for (const { work } of due) work()
  }

  /** The agent gets no changes now. */
  get isLate(): boolean {
    return this.#isLate
  }

  /** What the agent can know. */
  known(): Known {
    return new Map(this.#objects)
  }

  /** Adds or replaces an object, or removes it. */
  put(kind: Kind, metadata: Metadata, rest: Readonly<Record<string, unknown>> | undefined): void {
    const key = metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`
    const object = rest && { metadata, ...rest }
    const work = () => {
      if (object) {
        this.#objects.set(`${kind} ${key}`, object)
        this.#server.put(LISTS[kind], object as unknown as Raw)
      } else if (this.#objects.delete(`${kind} ${key}`)) this.#server.drop(LISTS[kind], key)
    }
    this.#late.push({ kind, work })
    this.#flush()
  }

  /** From now on changes come late. With `isAway` the API server does not answer, either. */
  hold(isAway: boolean): void {
    this.#isLate = true
    if (isAway) this.#server.close()
  }

  /** The late changes come, and all that follow come at once. */
  release(): void {
    if (!this.#server.isOpen) this.#server.open()
    this.#isLate = false
    this.#flush()
  }
}

/** The objects of a kind that the agent knows. */
export function ofKind(known: Known, kind: Kind): Draft[] {
  return [...known].flatMap(([key, one]) => (key.startsWith(`${kind} `) ? [one] : []))
}

/** The same objects as the oracle reads them. `ips` gives a pod's addresses. */
export function objectsOf(known: Known, ips: (pod: Draft) => readonly Ip[]): Objects {
  return {
    pods: ofKind(known, 'Pod').flatMap((one) => {
      const pod = podOf(one)
      return pod ? [{ ...pod, ips: ips(one) } as Pod] : []
    }),
    namespaces: ofKind(known, 'Namespace').map(namespaceOf),
    nodes: ofKind(known, 'Node').map(clusterNodeOf),
    policies: ofKind(known, 'NetworkPolicy').map(policyOf),
    clusterPolicies: ofKind(known, 'ClusterNetworkPolicy').map(clusterPolicyOf),
  }
}
