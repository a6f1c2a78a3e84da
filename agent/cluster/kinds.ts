import type { Query } from './api.ts'
import { type ClusterPolicy, closedClusterPolicyOf, clusterPolicyOf } from './cluster-policy.ts'
import {
  type ClusterNode,
  closedPolicyOf,
  clusterNodeOf,
  type Namespace,
  namespaceOf,
  type Pod,
  type Policy,
  podOf,
  policyOf,
} from './objects.ts'
import { NOT_OURS, type Service, type ServiceCidr, type Slice, serviceCidrOf, serviceOf, sliceOf } from './services.ts'

/** The values of each kind of object. A key is `namespace/name`, or `name` for objects without a namespace. */
export interface Values {
  readonly pods: Pod
  readonly namespaces: Namespace
  readonly policies: Policy
  readonly clusterPolicies: ClusterPolicy
  readonly nodes: ClusterNode
  readonly services: Service
  readonly slices: Slice
  readonly serviceCidrs: ServiceCidr
}
/** The name of a kind. */
export type KindName = keyof Values
/** The known objects, by kind and key. */
export type Objects = { readonly [K in KindName]: ReadonlyMap<string, Values[K]> }

/** How the objects of one kind are found and read. */
export interface ObjectKind<T> {
  /** `kind` in a manifest. */
  readonly manifest: string
  /** The path of the API's list, `/api/v1/pods`. */
  readonly path: string
  readonly query?: Query
  /** Objects with one of these labels are left out, of the API by `query` and of a folder alike. */
  readonly without?: readonly string[]
  /** Whether the API may lack the kind: its CustomResourceDefinition is not installed, or Kubernetes is older. */
  readonly isOptional?: true
  /** Reads an object. Undefined for one that does not matter. Throws ValueError with the object's name. */
  project(raw: unknown): T | undefined
  /** What stands for an object that nobody can read and that was not known before. Absent: nothing does. */
  unreadable?(raw: unknown): T | undefined
}

/** All kinds of objects that the agent reads. */
export const KINDS: { readonly [K in KindName]: ObjectKind<Values[K]> } = {
  pods: { manifest: 'Pod', path: '/api/v1/pods', project: podOf },
  namespaces: { manifest: 'Namespace', path: '/api/v1/namespaces', project: namespaceOf },
  policies: {
    manifest: 'NetworkPolicy',
    path: '/apis/networking.k8s.io/v1/networkpolicies',
    project: policyOf,
    unreadable: closedPolicyOf,
  },
  clusterPolicies: {
    manifest: 'ClusterNetworkPolicy',
    path: '/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies',
    isOptional: true,
    project: clusterPolicyOf,
    unreadable: closedClusterPolicyOf,
  },
  nodes: { manifest: 'Node', path: '/api/v1/nodes', project: clusterNodeOf },
  services: { manifest: 'Service', path: '/api/v1/services', ...withoutLabels(NOT_OURS), project: serviceOf },
  slices: {
    manifest: 'EndpointSlice',
    path: '/apis/discovery.k8s.io/v1/endpointslices',
    ...withoutLabels(NOT_OURS),
    project: sliceOf,
  },
  // From Kubernetes 1.33 on. Before that, the API server alone knows the network.
  serviceCidrs: {
    manifest: 'ServiceCIDR',
    path: '/apis/networking.k8s.io/v1/servicecidrs',
    isOptional: true,
    project: serviceCidrOf,
  },
}

function withoutLabels(without: readonly string[]): { readonly query: Query; readonly without: readonly string[] } {
  return { query: { labelSelector: without.map((label) => `!${label}`).join(',') }, without }
}
