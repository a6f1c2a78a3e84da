import { namespaceOf, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { run } from '../../agent/kernel/run.ts'
import { load, update } from '../../agent/policy/program.ts'
import { everything, PolicyState } from '../../agent/policy/state.ts'
import { parseCidr } from '../../lib/text/ip.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { type Bar, judge, short, type Table } from '../report.ts'

const [PODS, NAMESPACES, LOCAL] = [10_000, 100, 250]
const [TIMES, NODE] = [30, 'node-1']
const OPTIONS = { subnets: [parseCidr('10.244.1.0/24')], isAudit: false }
const [POD_MS, POLICY_MS, COLD_MS, MEMORY_MB] = [10, 50, 2000, 200]

/** What NetworkPolicy costs the agent, from the objects to the kernel: the engine with the real nft, in a cluster of 10,000 pods. */
export async function policy(bench: Bench): Promise<Table> {
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const policies of [200, 1000]) {
    const cluster = clusterOf(policies)
    const started = performance.now()
    const state = new PolicyState(cluster, NODE)
    state.apply(everything(cluster))
    const compiled = performance.now() - started
    await load(state, OPTIONS, run)
    const cold = performance.now() - started
    const sets = [...state.items.all()]
    const memory = process.memoryUsage.rss() / 1e6
    const onePod: number[] = []
    const changed: number[] = []
    for (let i = 0; i < bench.times(TIMES); i++) {
      const key = 'ns-0/new'
      onePod.push(await timed(state, 'pods', key, () => void cluster.pods.set(key, pod('ns-0', 'new', i, 'elsewhere', `10.250.${i}.1`))))
      await timed(state, 'pods', key, () => void cluster.pods.delete(key))
      changed.push(await timed(state, 'policies', 'ns-0/p0', () => void cluster.policies.set('ns-0/p0', policyAt(0, 8000 + i))))
    }
    const [one, other] = [median(onePod), median(changed)]
    // The bars are for a node with 200 policies, and the cold start for one with 1,000.
    const own =
      policies === 200
        ? [judge(`≤ ${POD_MS} ms`, [{ name: 'one pod more', figure: one, met: one <= POD_MS }]), judge(`≤ ${POLICY_MS} ms`, [{ name: 'one policy changed', figure: other, met: other <= POLICY_MS }])]
        : [judge(`≤ ${COLD_MS / 1000} s`, [{ name: 'cold', figure: cold, met: cold <= COLD_MS }]), judge(`≤ ${MEMORY_MB} MB`, [{ name: 'memory', figure: memory, met: memory <= MEMORY_MB }])]
    bars.push(...own)
    rows.push([String(policies), String(sets.length), short(compiled), short(cold), short(memory), short(one), short(other), own.map(({ text }) => text).join('; ')])
  }
  return {
    title: 'NetworkPolicy: from the objects to the kernel',
    method: `A cluster of ${PODS.toLocaleString('en')} pods in ${NAMESPACES} namespaces, ${LOCAL} of them on this node; policies spread over the namespaces, each with two selectors, a block of addresses and ports; all of them select local pods. In the process of the bench, with the agent's own code and the real nft. Cold: everything compiled, and loaded in one transaction. Medians in ms; memory is that of the whole process after the load.`,
    head: ['policies', 'chains, sets and counters', 'compiled, ms', 'cold with nft, ms', 'MB', 'one pod more, ms', 'one policy changed, ms', 'bars'],
    rows,
    bars,
  }
}

async function timed(state: PolicyState, kind: 'pods' | 'policies', key: string, change: () => void): Promise<number> {
  const started = performance.now()
  change()
  state.apply(new Map([[kind, new Set([key])]]))
  await update(state, run)
  return performance.now() - started
}

function clusterOf(policies: number) {
  const namespaces = new Map(Array.from({ length: NAMESPACES }, (_, i) => [`ns-${i}`, namespaceOf({ metadata: { name: `ns-${i}`, labels: { team: `t${i % 10}` } } })]))
  const pods = new Map(
    Array.from({ length: PODS }, (_, i) => {
      const [namespace, name] = [`ns-${i % NAMESPACES}`, `pod-${i}`]
      const isLocal = i < LOCAL
      return [`${namespace}/${name}`, pod(namespace, name, i, isLocal ? NODE : `node-${2 + (i % 50)}`, isLocal ? `10.244.1.${i}` : `10.245.${i >> 8}.${i & 255}`)] as const
    }),
  )
  return { pods: new Map(pods), namespaces, policies: new Map(Array.from({ length: policies }, (_, i) => [`ns-${i % NAMESPACES}/p${i}`, policyAt(i, 8000)])), clusterPolicies: new Map(), nodes: new Map() }
}

function pod(namespace: string, name: string, i: number, node: string, ip: string) {
  const found = podOf({ metadata: { namespace, name, labels: { app: `a${i % 20}`, tier: i % 2 ? 'web' : 'db' } }, spec: { nodeName: node, containers: [{ ports: [{ name: 'web', containerPort: 8080 }] }] }, status: { podIPs: [{ ip }] } })
  if (!found) throw new Error(`${name} is no pod`)
  return found
}

function policyAt(i: number, port: number) {
  return policyOf({
    metadata: { namespace: `ns-${i % NAMESPACES}`, name: `p${i}` },
    spec: {
      podSelector: {},
      policyTypes: ['Ingress', 'Egress'],
      ingress: [{ from: [{ podSelector: { matchLabels: { app: `a${i % 20}` } } }, { namespaceSelector: { matchLabels: { team: `t${i % 10}` } } }, { ipBlock: { cidr: `172.16.${i % 256}.0/24` } }], ports: [{ port }, { port: 443 }] }],
      egress: [{ to: [{ namespaceSelector: {}, podSelector: { matchLabels: { tier: 'db' } } }], ports: [{ port: 5432 }] }],
    },
  })
}
