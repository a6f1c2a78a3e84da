import assert from 'node:assert/strict'
import { accessOf } from '../../../agent/cluster/access.ts'
import { Api } from '../../../agent/cluster/api.ts'
import { clusterTargets } from '../../../cli/fleet/cluster.ts'
import { until } from '../harness.ts'
import { rulesOf } from '../kube-apiserver.ts'
import type { Raw, Rule } from '../kube-server.ts'
import { patient } from '../patience.ts'

/** An API server with what the tests need of its administrator. */
export interface FleetCluster {
  /** The way of a user, who has only what `grant` gave. */
  readonly kubeconfig: string
  readonly user: string
  grant(rules: readonly Rule[]): Promise<unknown>
  /** Makes an object, with its status. */
  post(path: string, object: Raw): Promise<unknown>
}

const ROLE = rulesOf('docs/status.md', 'plumb-top')
const FORWARD = 'pods/portforward'
const signal = () => AbortSignal.timeout(patient(20_000))

/** What `plumb top --kubeconfig` gets from an API server whose nodes have no kubelet: `name` says which server. */
export function testFleet(name: string, serve: (test: Mocha.Context) => Promise<FleetCluster>): void {
  const ready = async (test: Mocha.Context) => {
    const cluster = await serve(test)
    await cluster.grant(ROLE)
    return cluster
  }
  const apiOf = ({ kubeconfig }: FleetCluster) => new Api(accessOf({ kubeconfig }), 'plumb-top/test')
  const words = async (cluster: FleetCluster) => {
    const { all, note } = await clusterTargets(apiOf(cluster), signal())
    const asked = all.map(async ({ name, zone, ask }) => {
      const says = await ask('/summary', signal()).then(
        () => 'answers',
        (cause: Error) => cause.message,
      )
      return `${name} ${zone ?? '-'}: ${says}`
    })
    return { lines: (await Promise.all(asked)).sort(), note }
  }

  it(`${name}: the Nodes of Linux with their zones and agents, and why each cannot be asked`, async function () {
    this.timeout(180_000)
    const cluster = await ready(this)
    const node = (name: string, labels: Raw['metadata']['labels'], port?: number) =>
      cluster.post('/api/v1/nodes', {
        metadata: { name, ...(labels && { labels }) },
        status: {
          ...(port !== undefined && {
            addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
            daemonEndpoints: { kubeletEndpoint: { Port: port } },
          }),
        },
      })
    const pod = (on: string, phase: string) =>
      cluster.post('/api/v1/namespaces/plumb/pods', {
        metadata: { name: `agent-${on}`, labels: { app: 'plumb-agent' } },
        spec: { nodeName: on, containers: [{ name: 'agent', image: 'plumb' }] },
        status: { phase },
      })
    await node('n1', { 'topology.kubernetes.io/zone': 'a', 'kubernetes.io/os': 'linux' }, 10_250)
    await node('n2', {}, 10_250)
    await node('n3', { 'topology.kubernetes.io/zone': 'b' }, 10_250)
    await node('n4', {}, 10_250)
    await node('w1', { 'kubernetes.io/os': 'windows' }, 10_250)
    await pod('n1', 'Running')
    await pod('n2', 'Running')
    await pod('n3', 'Pending')
    await pod('w1', 'Running')
    assert.deepEqual(await words(cluster), {
      lines: [
        'n1 a: the API server does not reach the kubelet: connect: connection refused',
        'n2 -: the API server does not reach the kubelet: connect: connection refused',
        'n3 b: the pod of the agent is Pending',
        'n4 -: no pod of the agent runs there',
      ],
      note: undefined,
    })
    // One sentence, the same for all nodes.
    for (const verb of ['get', 'create']) {
      await cluster.grant(
        ROLE.map((rule) =>
          rule.resources.includes(FORWARD) ? { ...rule, verbs: rule.verbs.filter((one) => one !== verb) } : rule,
        ),
      )
      // Of a verb that the second check misses, the server does not say who misses it.
      const who = verb === 'get' ? ` to User "${cluster.user}"` : ''
      const why = `the Kubernetes API does not allow it${who}: want a role with get and create of ${FORWARD}`
      await until(async () => assert.deepEqual((await words(cluster)).lines[0], `n1 a: ${why}`) ?? true, 10_000)
      assert.equal((await words(cluster)).lines[1], `n2 -: ${why}`)
    }
    for (const resource of ['nodes', 'pods']) {
      await cluster.grant(
        ROLE.map((rule) => ({ ...rule, resources: rule.resources.filter((one) => one !== resource) })),
      )
      const want = new RegExp(
        `^The Kubernetes API at \\S+ refused GET /api/v1/${resource}: 403 ${resource} is forbidden: User .*${cluster.user}.* cannot list resource .*${resource}.*; want a role that allows it for the kubeconfig \\S+$`,
      )
      await until(async () => assert.match((await words(cluster)).note ?? '', want) ?? true, 10_000)
      const { lines } = await words(cluster)
      assert.deepEqual(
        lines.map((line) => line.split(' ')[0]),
        resource === 'nodes' ? ['n1', 'n2', 'n3', 'w1'] : ['n1', 'n2', 'n3', 'n4'],
      )
    }
  })
}
