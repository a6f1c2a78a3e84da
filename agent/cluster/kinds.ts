import { ValueError } from '../../lib/text/errors.ts'
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
import { metaOf } from './reading.ts'
import { type Custom, listPath } from './served.ts'
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
  readonly adminPolicies: Unused
  readonly baselineAdminPolicies: Unused
}
/** An object that is only named. */
interface Unused {
  readonly name: string
}
/** The kinds before ClusterNetworkPolicy, which plumb does not enforce. */
export const FORMER_POLICY_KINDS = ['adminPolicies', 'baselineAdminPolicies'] as const satisfies readonly KindName[]
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
  /** The API may lack the kind, or serve it in another version: a CustomResourceDefinition makes it, or it is new. */
  readonly custom?: Custom
  /** plumb does nothing with these objects but name them. */
  readonly isUnused?: true
  /** Reads an object. Undefined for one that does not matter. Throws ValueError with the object's name. */
  project(raw: unknown): T | undefined
  /** What stands for an object that nobody can read and that was not known before. Absent: nothing does. */
  unreadable?(raw: unknown): T | undefined
}

const CLUSTER_POLICY = 'policy.networking.k8s.io'

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
    ...madeBy({ group: CLUSTER_POLICY, plural: 'clusternetworkpolicies', versions: ['v1beta1', 'v1alpha2'] }),
    project: clusterPolicyOf,
    unreadable: closedClusterPolicyOf,
  },
  nodes: { manifest: 'Node', path: '/api/v1/nodes', project: clusterNodeOf },
  services: {
    manifest: 'Service',
    path: '/api/v1/services',
    ...withoutLabels(NOT_OURS),
    project: serviceOf,
    unreadable: nothing,
  },
  slices: {
    manifest: 'EndpointSlice',
    path: '/apis/discovery.k8s.io/v1/endpointslices',
    ...withoutLabels(NOT_OURS),
    project: sliceOf,
    unreadable: nothing,
  },
  // From Kubernetes 1.33 on, and before that as a beta. Else the API server alone knows the network.
  serviceCidrs: {
    manifest: 'ServiceCIDR',
    ...madeBy({ group: 'networking.k8s.io', plural: 'servicecidrs', versions: ['v1', 'v1beta1'] }),
    project: serviceCidrOf,
  },
  adminPolicies: unused('AdminNetworkPolicy', 'adminnetworkpolicies'),
  baselineAdminPolicies: unused('BaselineAdminNetworkPolicy', 'baselineadminnetworkpolicies'),
}

/** The values of `apiVersion` in a manifest of a kind. */
export function apiVersionsOf({ path, custom }: ObjectKind<unknown>): string[] {
  if (custom) return custom.versions.map((version) => `${custom.group}/${version}`)
  // `/api/v1/pods`, `/apis/networking.k8s.io/v1/networkpolicies`.
  return [path.split('/').slice(2, -1).join('/')]
}

// Clients of a Service stay served by what was known of it.
function nothing(): undefined {
  return undefined
}

function madeBy(custom: Custom): { readonly custom: Custom; readonly path: string } {
  return { custom, path: listPath(custom, custom.versions[0] ?? '') }
}

function unused(manifest: string, plural: string): ObjectKind<Unused> {
  return {
    manifest,
    ...madeBy({ group: CLUSTER_POLICY, plural, versions: ['v1alpha1'] }),
    isUnused: true,
    project(raw) {
      const { name } = metaOf(raw, manifest)
      throw new ValueError(`${manifest} ${name}: plumb does not enforce this kind; want a ClusterNetworkPolicy`)
    },
  }
}

function withoutLabels(without: readonly string[]): { readonly query: Query; readonly without: readonly string[] } {
  return { query: { labelSelector: without.map((label) => `!${label}`).join(',') }, without }
}
