// The objects of a history: what stands in the API, and the part that the agent can know. Begin with `World`.
import { clusterPolicyOf } from '../../../agent/cluster/cluster-policy.ts'
import { clusterNodeOf, namespaceOf, type Pod, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import type { Objects } from '../../../agent/policy/oracle.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { KubeServer, Raw } from '../../support/kube-server.ts'

/** The kinds of objects of a history, by the path of the API's list. */
const LISTS = {
  Pod: '/api/v1/pods',
  Namespace: '/api/v1/namespaces',
  Node: '/api/v1/nodes',
  NetworkPolicy: '/apis/networking.k8s.io/v1/networkpolicies',
  ClusterNetworkPolicy: '/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies',
  Service: '/api/v1/services',
  EndpointSlice: '/apis/discovery.k8s.io/v1/endpointslices',
} as const
export type Kind = keyof typeof LISTS
type Metadata = { readonly namespace?: string; readonly name: string; readonly [key: string]: unknown }
/** An object without its kind. */
export type Draft = { readonly metadata: Metadata } & { readonly [key: string]: unknown }

/** What the agent knows of the cluster: objects by kind and key. */
export type Known = ReadonlyMap<string, Draft>

/** The objects of a cluster. They reach the agent at once, or when its watch no longer lags. */
export class World {
  readonly #server: KubeServer
  readonly #objects = new Map<string, Draft>()
  readonly #late: (() => void)[] = []
  #isLate = false

  constructor(server: KubeServer) {
    this.#server = server
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
    if (this.#isLate) this.#late.push(work)
    else work()
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
    for (const work of this.#late.splice(0)) work()
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
