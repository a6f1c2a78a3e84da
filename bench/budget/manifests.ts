import { writeFileSync } from 'node:fs'
import type { Kind as Listed } from '../agent/object-server.ts'
import { run } from '../tools.ts'
import { PODS, type PodName, type World } from './paths.ts'

/** The Service of the pod b1, and the port at which pods answer. */
export const [VIP, VIP_PORT, PORT] = ['10.96.0.10', 80, 8080]

interface Manifest {
  readonly kind: string
  readonly apiVersion: string
  readonly metadata: object
  readonly [key: string]: unknown
}

/** The pods of a world, its policy, and the Service of b1. A pod without an address is not there yet. */
export function objects({ policy }: World, addresses: ReadonlyMap<PodName, string>): Manifest[] {
  const meta = (name: string, labels: object = {}) => ({
    namespace: 'x',
    name,
    labels,
    uid: `uid-${name}`,
    resourceVersion: '1',
    creationTimestamp: '2026-01-01T00:00:00Z',
  })
  const pods = (Object.keys(PODS) as PodName[]).map((name) => ({
    kind: 'Pod',
    apiVersion: 'v1',
    metadata: meta(name, { app: 'traffic' }),
    spec: { nodeName: PODS[name].node, containers: [] },
    status: { phase: 'Running', podIPs: addresses.has(name) ? [{ ip: addresses.get(name) }] : [] },
  }))
  // Both directions of each pod are isolated, and the pods reach each other.
  const peers = [{ podSelector: { matchLabels: { app: 'traffic' } } }]
  const rules = {
    kind: 'NetworkPolicy',
    apiVersion: 'networking.k8s.io/v1',
    metadata: meta('traffic'),
    spec: {
      podSelector: {},
      policyTypes: ['Ingress', 'Egress'],
      ingress: [{ from: peers, ports: [{ protocol: 'TCP', port: PORT }] }],
      egress: [{ to: peers }],
    },
  }
  const service = {
    kind: 'Service',
    apiVersion: 'v1',
    metadata: meta('s0'),
    spec: {
      type: 'ClusterIP',
      clusterIP: VIP,
      clusterIPs: [VIP],
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      ports: [{ protocol: 'TCP', port: VIP_PORT, targetPort: PORT }],
      sessionAffinity: 'None',
      internalTrafficPolicy: 'Cluster',
    },
    status: { loadBalancer: {} },
  }
  const address = addresses.get('b1')
  const slice = {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    metadata: meta('s0-1', {
      'kubernetes.io/service-name': 's0',
      'endpointslice.kubernetes.io/managed-by': 'bench',
    }),
    addressType: 'IPv4',
    ports: [{ name: '', protocol: 'TCP', port: PORT }],
    endpoints: address ? [{ addresses: [address], conditions: { ready: true }, nodeName: 'n2' }] : [],
  }
  return [...pods, ...(policy ? [rules] : []), service, slice]
}

/** Writes them into the folder that agents follow, whole. */
export function write(dir: string, all: readonly Manifest[]): void {
  writeFileSync(`${dir}/.all`, all.map((one) => JSON.stringify(one)).join('\n---\n'))
  run(['mv', `${dir}/.all`, `${dir}/all.yaml`])
}

/** The lists that kube-proxy asks for. */
export function listed(all: readonly Manifest[]): Record<string, Listed> {
  const items = (kind: string) => all.filter((one) => one.kind === kind)
  return {
    '/api/v1/services': { kind: 'Service', apiVersion: 'v1', items: items('Service') },
    '/apis/discovery.k8s.io/v1/endpointslices': {
      kind: 'EndpointSlice',
      apiVersion: 'discovery.k8s.io/v1',
      items: items('EndpointSlice'),
    },
    '/apis/networking.k8s.io/v1/servicecidrs': {
      kind: 'ServiceCIDR',
      apiVersion: 'networking.k8s.io/v1',
      items: [],
    },
  }
}
