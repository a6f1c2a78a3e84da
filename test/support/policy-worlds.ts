import { type ClusterPolicy, clusterPolicyOf } from '../../agent/cluster/cluster-policy.ts'
import { type Namespace, namespaceOf, type Pod, type Policy, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { noObjects } from '../../agent/cluster/source.ts'
import { compile } from '../../agent/policy/state.ts'
import type { PolicyKnowledge } from '../../agent/policy/view.ts'

/** The namespaces of a generated world. */
export const NAMESPACES = ['x', 'y', 'z']

/** What a node knows of a generated cluster with so many pods and policies. */
export function world(random: () => number, pods: number, policies: number): PolicyKnowledge {
  const below = (n: number) => Math.floor(random() * n)
  const pick = <T>(all: readonly T[]) => all[below(all.length)] as T
  const [namespaces, all, policed] = [new Map<string, Namespace>(), new Map<string, Pod>(), new Map<string, Policy>()]
  const clusterPolicies = new Map<string, ClusterPolicy>()
  const cluster = { ...noObjects(), namespaces, pods: all, policies: policed, clusterPolicies }
  for (const name of NAMESPACES)
    namespaces.set(name, namespaceOf({ metadata: { name, labels: { team: name === 'x' ? 'red' : 'blue' } } }))
  for (let i = 0; i < pods; i++) {
    const [namespace, name] = [pick(NAMESPACES), `p${i}`]
    const pod = podOf({
      metadata: { namespace, name, labels: { app: pick(['a', 'b', 'c']), 'pod-name': name } },
      spec: {
        nodeName: i % 3 === 0 ? 'other' : 'n',
        containers: [{ ports: [{ name: 'web', containerPort: pick([80, 8080]), protocol: 'TCP' }] }],
      },
      status: { podIPs: [{ ip: `10.1.${i >> 8}.${i & 255}` }, { ip: `fd00::${i.toString(16)}` }] },
    })
    if (pod) all.set(`${namespace}/${name}`, pod)
  }
  const selector = () => (below(3) === 0 ? {} : { matchLabels: { app: pick(['a', 'b', 'c']) } })
  const peer = () =>
    pick<() => object>([
      () => ({ podSelector: selector() }),
      () => ({ namespaceSelector: { matchLabels: { team: pick(['red', 'blue']) } }, podSelector: selector() }),
      () => ({ ipBlock: { cidr: '10.1.0.0/16', except: [`10.1.0.${below(16)}/32`] } }),
      () => ({ ipBlock: { cidr: `10.1.0.${8 * below(2)}/29` } }),
    ])()
  const port = () =>
    pick<() => object>([
      () => ({ protocol: 'TCP', port: 80 }),
      () => ({ protocol: 'TCP', port: 'web' }),
      () => ({ protocol: 'UDP', port: 8000, endPort: 8080 }),
      () => ({ protocol: pick(['TCP', 'UDP']) }),
    ])()
  const list = (make: () => object, most: number) => Array.from({ length: below(most + 1) }, make)
  for (let i = 0; i < policies; i++) {
    const raw = {
      metadata: { namespace: pick(NAMESPACES), name: `policy-${i}` },
      spec: {
        podSelector: selector(),
        policyTypes: [['Ingress'], ['Egress'], ['Ingress', 'Egress']][below(3)],
        ingress: list(() => ({ from: list(peer, 2), ports: list(port, 2) }), 2),
        egress: list(() => ({ to: list(peer, 2), ports: list(port, 2) }), 2),
      },
    }
    const policy = policyOf(raw)
    policed.set(`${policy.namespace}/${policy.name}`, policy)
  }
  if (policies > 0 && below(2))
    clusterPolicies.set(
      'tier',
      clusterPolicyOf({
        metadata: { name: 'tier' },
        spec: {
          tier: 'Admin',
          priority: 1,
          subject: { namespaces: {} },
          ingress: [
            {
              action: pick(['Accept', 'Deny', 'Pass']),
              from: [{ pods: { namespaceSelector: {}, podSelector: { matchLabels: { app: 'a' } } } }],
            },
          ],
        },
      }),
    )
  return { cluster, state: compile(cluster, 'n'), subnets: [], isAudit: false }
}
