// lane: kubernetes
// Tests cli/fleet and cli/connectivity in a real Kubernetes: agents by port-forward, far ends by kubectl exec.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { accessOf } from '../../../agent/cluster/access.ts'
import { type Cluster, type Finished, type Machine, missing } from '../../../tools/k8s/lab.ts'
import type { Told } from '../../support/connectivity.ts'
import { until } from '../../support/harness.ts'
import { rulesOf } from '../../support/kube-apiserver.ts'
import type { Rule } from '../../support/kube-server.ts'
import { kubeconfigOf } from '../../support/kubeconfig.ts'
import { skip } from '../../support/skip.ts'
import { upWithPlumb } from '../../support/upstream.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
/** Nobody listens there. */
const SILENT = 9555

let cluster: Cluster
before(async function () {
  this.timeout(600_000)
  const why = missing()
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await upWithPlumb({ isDual: true, values: ['network.ipv6=fd44::/48'] })
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

const apply = (...objects: object[]) =>
  cluster.kubectl(['apply', '-f', '-'], objects.map((one) => JSON.stringify(one)).join('\n---\n'))
const rbac = (kind: string, more: object) => ({ apiVersion: 'rbac.authorization.k8s.io/v1', kind, ...more })
const node = (name: string) => cluster.nodes.find((one) => one.name === name) as Machine

/** Gives a service account this role, and no other. Returns a kubeconfig with a token of it. */
async function userWith(name: string, rules: readonly Rule[]): Promise<string> {
  const account = { kind: 'ServiceAccount', name, namespace: 'default' }
  await apply(
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace: 'default' } },
    rbac('ClusterRole', { metadata: { name }, rules }),
    rbac('ClusterRoleBinding', {
      metadata: { name },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
      subjects: [account],
    }),
  )
  const token = (await cluster.kubectl(['create', 'token', name])).trim()
  const [dir, file] = [dirname(cluster.kubeconfig), join(dirname(cluster.kubeconfig), `${name}.conf`)]
  const { server } = accessOf({ kubeconfig: cluster.kubeconfig })
  writeFileSync(file, kubeconfigOf(server, join(dir, 'ca.crt'), `token: ${token}`))
  return file
}

/** The pod of the agent of a node. */
async function agentOf(name: string): Promise<string> {
  const { items } = JSON.parse(
    await cluster.kubectl(['-n', 'plumb', 'get', 'pod', '-l', 'app=plumb-agent', '-o', 'json']),
  ) as { items: { metadata: { name: string }; spec: { nodeName: string } }[] }
  return items.find(({ spec }) => spec.nodeName === name)?.metadata.name as string
}

interface Fleet {
  readonly nodes: readonly { readonly name: string; readonly state: string; readonly cause?: string }[]
  readonly sentence: string
}
const wordsOf = ({ nodes }: Fleet) => nodes.map(({ name, state, cause }) => [name, state, cause ?? ''].join(' ').trim())

describe('plumb top and plumb page in Kubernetes', function () {
  this.timeout(300_000)

  let kubeconfig = ''
  const rules = rulesOf('docs/status.md', 'plumb-top')
  before(async () => {
    kubeconfig = await userWith('plumb-top', rules)
  })
  const top = async () => {
    const { status, stdout, stderr } = await cluster.control.exec([
      PLUMB,
      'top',
      '--once',
      '--json',
      '--kubeconfig',
      kubeconfig,
    ])
    assert.ok(stdout.startsWith('{'), `${status}: ${stderr}`)
    return { ...(JSON.parse(stdout) as Fleet), status }
  }
  /** Waits until top says so of the nodes. */
  const says = (...lines: string[]) =>
    until(async () => assert.deepEqual(wordsOf(await top()).sort(), lines) ?? true, 60_000)

  it('each agent is asked by port-forward, with no more than the role of the docs', async () => {
    await says('n1 ready', 'n2 ready')
    const { sentence, status } = await top()
    assert.deepEqual([sentence, status], ['2 of 2 nodes are ready', 0])
    const page = 'http://127.0.0.1:9470'
    cluster.control.start('page', [PLUMB, 'page', '--kubeconfig', kubeconfig])
    const get = async (path: string) => (await cluster.control.exec(['curl', '-s', '-m', '5', `${page}${path}`])).stdout
    await until(async () => (JSON.parse(await get('/fleet')) as Fleet).sentence === sentence, 60_000)
    assert.match(await get('/'), /2 of 2 nodes are ready/)
    await cluster.control.stop('page')
  })
  it('what the role does not allow is one sentence', async () => {
    for (const verb of ['get', 'create']) {
      const less = ({ resources, verbs }: Rule) =>
        verbs.filter((one) => resources[0] !== 'pods/portforward' || one !== verb)
      await userWith(
        'plumb-top',
        rules.map((rule) => ({ ...rule, verbs: less(rule) })),
      )
      const who = verb === 'get' ? ' to User "system:serviceaccount:default:plumb-top"' : ''
      const why = `the Kubernetes API does not allow it${who}: want a role with get and create of pods/portforward`
      await says(`n1 dead ${why}`, `n2 dead ${why}`)
    }
    await userWith('plumb-top', rules)
    await says('n1 ready', 'n2 ready')
  })
  it('a pod without an agent, and a node without a kubelet, are named', async () => {
    // Of two pods of a node, the last of the list counts.
    const probe = { httpGet: { host: '127.0.0.1', port: SILENT, path: '/' }, initialDelaySeconds: 3600 }
    const image = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1'
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'zz' } })
    await until(() => cluster.kubectl(['-n', 'zz', 'get', 'serviceaccount', 'default']), 30_000)
    await apply({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'none', namespace: 'zz', labels: { app: 'plumb-agent' } },
      spec: {
        nodeName: 'n1',
        terminationGracePeriodSeconds: 0,
        containers: [{ name: 'c', image, imagePullPolicy: 'Never', args: ['pause'], livenessProbe: probe }],
      },
    })
    await says(`n1 dead no agent listens on port ${SILENT} of its node`, 'n2 ready')
    await cluster.kubectl(['-n', 'zz', 'delete', 'pod', 'none', '--wait'])
    await says('n1 ready', 'n2 ready')
  })
})

describe('plumb connectivity in Kubernetes', function () {
  this.timeout(400_000)

  let words: readonly string[] = []
  before(async () => {
    const file = await userWith('plumb-connectivity', rulesOf('docs/connectivity.md', 'plumb-connectivity'))
    const far = `kubectl --kubeconfig ${cluster.kubeconfig} exec -i -n plumb ${await agentOf('n2')} -- plumb`
    words = [PLUMB, 'connectivity', '--json', '--far', `n2=${far}`, '--kubeconfig-file', file]
  })
  const told = ({ status, stdout, stderr }: Finished) => {
    assert.ok(stdout.startsWith('{'), `${status}: ${stderr}`)
    const { cases, notMade } = JSON.parse(stdout) as Told
    const failed = cases.filter(({ state }) => state !== 'ok')
    return { status, failed, notMade: notMade.map(({ what }) => what), cases }
  }
  /** What a run has on the nodes and in the API. */
  const left = async () => {
    const namespaces = await cluster.kubectl(['get', 'namespaces', '-o', 'name'])
    const results = await Promise.all(
      cluster.nodes.map(({ exec }) => exec(['sh', '-c', 'ls /run/plumb/connectivity/cache/results'])),
    )
    return [
      ...namespaces.split('\n').filter((one) => one.includes('connectivity')),
      ...results.map(({ stdout }) => stdout.trim()),
    ]
  }
  const isClean = () => until(async () => assert.deepEqual(await left(), ['', '']) ?? true, 90_000)

  it('all ways between two nodes, with Services, DNS and policy, and nothing is left', async () => {
    const { cases, ...rest } = told(await node('n1').exec(words))
    assert.deepEqual(rest, { status: 0, failed: [], notMade: ['addresses outside'] })
    const made = (test: string, way: string) => cases.filter((one) => one.test === test && one.way === way).length
    assert.deepEqual(
      [
        made('SCTP', 'pod → pod, other node'),
        made('UDP', 'pod → DNS of the cluster'),
        made('TCP', 'policy denies, other node'),
      ],
      [4, 2, 4],
    )
    await isClean()
  })
  it('what a killed run leaves goes away: on the other node at once, here and in the API by the next run', async () => {
    const script = 'exec "$@" >/dev/null 2>&1'
    node('n1').start('connectivity', ['sh', '-c', script, '--', ...words])
    await until(async () => /echo-2/.test(await cluster.kubectl(['get', 'services', '-A'])), 60_000)
    await node('n1').exec(['pkill', '-9', '-f', '^[^ ]*plumb connectivity --json'])
    await until(async () => (await left()).at(-1) === '', 60_000)
    assert.ok((await left()).some((one) => one.startsWith('namespace/')))
    assert.deepEqual(told(await node('n1').exec([...words, '--quick'])).failed, [])
    await isClean()
  })
  it('without a user, in the pod of an agent, one sentence says what is missing', async () => {
    const argv = ['kubectl', '--kubeconfig', cluster.kubeconfig, 'exec', '-n', 'plumb', await agentOf('n1'), '--']
    const { status, stderr } = await cluster.control.exec([...argv, 'plumb', 'connectivity'])
    assert.equal(status, 1)
    assert.match(
      stderr,
      /^error \d+: Cannot make test pods: the network enforces NetworkPolicy, so each pod needs an object in the Kubernetes API\n {2}.* refused POST \/api\/v1\/namespaces: 403 namespaces is forbidden: User .*system:serviceaccount:plumb:plumb.*cannot create resource .*; see --kubeconfig-file; or leave pods out by --from nodes$/m,
    )
    const nodes = await cluster.control.exec([...argv, 'plumb', 'connectivity', '--from', 'nodes', '--json'])
    assert.match(nodes.stdout, /"cases": \[\]/)
  })
})

describe('plumb top in Kubernetes, without a kubelet', function () {
  this.timeout(120_000)

  it('a node whose kubelet is away is named', async () => {
    const kubeconfig = await userWith('plumb-top', rulesOf('docs/status.md', 'plumb-top'))
    await node('n2').stop('kubelet')
    await until(async () => {
      const { stdout } = await cluster.control.exec([PLUMB, 'top', '--once', '--json', '--kubeconfig', kubeconfig])
      assert.deepEqual(wordsOf(JSON.parse(stdout) as Fleet).sort(), [
        'n1 ready',
        'n2 dead the API server does not reach the kubelet: connect: connection refused',
      ])
      return true
    }, 60_000)
  })
})
