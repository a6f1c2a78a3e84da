// lane: peers
// Tests conf/chart with helm against kube-apiserver: upgrades, and what the token of an agent may change.
import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Glob } from 'bun'
import { execa } from 'execa'
import { accessOf } from '../../../agent/cluster/access.ts'
import { Api } from '../../../agent/cluster/api.ts'
import { type Announcement, ClusterEvents } from '../../../agent/cluster/events.ts'
import { version } from '../../../package.json'
import { helm } from '../../../scripts/chart.ts'
import { until } from '../../support/harness.ts'
import { type ApiServer, apiServer, missingApiServer } from '../../support/kube-apiserver.ts'
import { kubeconfigOf } from '../../support/kubeconfig.ts'
import { patient } from '../../support/patience.ts'
import { skip } from '../../support/skip.ts'
import { draft, published, storeOf } from '../../support/suites/testKube.ts'

const ROOT = join(import.meta.dir, '../../..')
const CHART = join(ROOT, 'conf/chart')
const PAGES = ['*.md', 'docs/**/*.md'].flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })]).sort()
const RUNS = ['network.ipv4=10.1.0.0/16', 'serviceProxy=true', 'apiServer.host=10.0.0.10', 'bgp.enabled=true']
const OWN = 'network.pods=bridge'

describe('conf/chart in a cluster', function () {
  this.timeout(300_000)
  let [api, program, dir]: [ApiServer | undefined, string, string] = [undefined, '', '']
  const server = () => api as ApiServer
  before(async function () {
    const why = missingApiServer()
    if (why !== undefined) return skip(this, why)
    program = helm() ?? skip(this, 'helm was not built: npm run chart builds it with Go')
    dir = mkdtempSync(join(tmpdir(), 'chart-live-'))
    api = await apiServer()
    // The chart's have these names.
    for (const kind of ['clusterrolebindings', 'clusterroles'])
      await api.ask('DELETE', `/apis/rbac.authorization.k8s.io/v1/${kind}/plumb`)
  })
  // No hooks: nobody runs pods here.
  afterEach(async () => {
    if (api !== undefined)
      for (const namespace of ['plumb', 'net']) await run('uninstall', 'plumb', '-n', namespace, '--no-hooks')
  })
  after(async () => {
    await api?.end()
    if (dir !== '') rmSync(dir, { recursive: true })
  })

  const run = (...args: readonly string[]) =>
    execa(program, args, {
      reject: false,
      cwd: dir,
      env: { KUBECONFIG: server().adminKubeconfig, HOME: dir },
    })
  async function must(...args: readonly string[]): Promise<string> {
    const { exitCode, stdout, stderr } = await run(...args)
    assert.equal(exitCode, 0, `helm ${args.join(' ')}: ${stderr}`)
    return stdout
  }
  const set = (...values: readonly string[]) => values.flatMap((one) => ['--set', one])
  const release = (namespace: string, chart = CHART) => ['plumb', chart, '--namespace', namespace]
  async function install(namespace: string, values: readonly string[], chart = CHART): Promise<void> {
    await must('install', ...release(namespace, chart), '--create-namespace', ...set(...values))
  }
  const configured = async (namespace: string) =>
    ((await server().ask('GET', `/api/v1/namespaces/${namespace}/configmaps/plumb`)) as { data?: object } | undefined)
      ?.data as Readonly<Record<string, string>>

  it('an upgrade that would change the network, or end Services or BGP, is refused and changes nothing; it says what to pass, and that works', async () => {
    await install('plumb', [...RUNS, OWN])
    const before = await configured('plumb')
    const upgrade = (...more: readonly string[]) => run('upgrade', ...release('plumb'), ...more)
    const refused = await upgrade('--set', 'page.enabled=true')
    assert.notEqual(refused.exitCode, 0)
    for (const [value, was, would] of [
      ['network.ipv4', '10.1.0.0/16', '10.244.0.0/16'],
      ['network.pods', 'bridge', 'routed'],
      ['serviceProxy', 'true', 'unset'],
      ['bgp.enabled', 'true', 'unset'],
    ])
      assert.ok(refused.stderr.includes(`${value} is ${was} and would be ${would}`), refused.stderr)
    assert.doesNotMatch(refused.stderr, /network\.ipv6 is|networkPolicy\.enabled is|network\.backend is/)
    assert.match(refused.stderr, /pass --reset-then-reuse-values/)
    assert.deepEqual(await configured('plumb'), before)
    for (const keep of ['--reset-then-reuse-values', '--reuse-values'])
      assert.equal((await upgrade(keep, '--set', 'page.enabled=true')).exitCode, 0, keep)
    assert.deepEqual(await configured('plumb'), before)
    // What nothing depended on comes without a question: a second family.
    await must('upgrade', ...release('plumb'), '--reuse-values', ...set('network.ipv6=fd44::/48'))
    // One change of the network that is meant, in the words of the refusal.
    const moved = ['--reuse-values', ...set('network.backend.Type=host-gw')]
    const { stderr } = await upgrade(...moved)
    assert.match(stderr, /network\.backend is \{"Type":"vxlan"\} and would be \{"Type":"host-gw"\}/)
    const [meant = ''] = /--set replaces=run-[0-9a-f]{8}/.exec(stderr) ?? []
    await must('upgrade', ...release('plumb'), ...moved, ...meant.split(' '))
    assert.match((await configured('plumb'))['net-conf.json'] ?? '', /host-gw/)
    // The consent is kept with the values, and counts for that one change alone.
    assert.notEqual((await upgrade('--reuse-values', ...set('network.ipv4=10.2.0.0/16'))).exitCode, 0)
    // A wrong word for it is no consent.
    assert.notEqual((await upgrade('--set', 'replaces=true')).exitCode, 0)
  })

  it('settings of `agent` that win over those of the chart are compared as they run', async () => {
    await install('plumb', ['agent.service-proxy=kubernetes'])
    const { exitCode, stderr } = await run('upgrade', ...release('plumb'), '--set', 'page.enabled=true')
    assert.notEqual(exitCode, 0)
    assert.match(stderr, /serviceProxy is true and would be unset/)
  })

  it('network policy that would end is a change that is asked about', async () => {
    await install('plumb', [])
    const { stderr } = await run('upgrade', ...release('plumb'), '--set', 'networkPolicy.enabled=false')
    assert.match(stderr, /networkPolicy\.enabled is true and would be unset/)
  })

  it('a ConfigMap that cannot be read is named, and not taken for none', async () => {
    await install('plumb', RUNS)
    await server().ask('PATCH', '/api/v1/namespaces/plumb/configmaps/plumb', {
      data: { 'net-conf.json': '{"Network"' },
    })
    const { exitCode, stderr } = await run('upgrade', ...release('plumb'), '--reuse-values')
    assert.notEqual(exitCode, 0)
    assert.match(stderr, /net-conf\.json is .*(unexpected|invalid).* and would be unset/i)
  })

  it('--reuse-values works on a release of a chart that did not have the newest values', async () => {
    const earlier = join(dir, 'earlier')
    cpSync(CHART, earlier, { recursive: true })
    const file = join(earlier, 'values.yaml')
    writeFileSync(file, readFileSync(file, 'utf8').replace(/^(replaces|ownNodeOnly): .*\n/gm, ''))
    await install('plumb', RUNS, earlier)
    await must('upgrade', ...release('plumb'), '--reuse-values', ...set('page.enabled=true'))
    assert.match((await configured('plumb'))['net-conf.json'] ?? '', /10\.1\.0\.0\/16/)
    await server().ask('GET', '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/plumb-own-node')
  })

  const lines = PAGES.flatMap((page) => {
    const text = readFileSync(join(ROOT, page), 'utf8')
    return [...text.matchAll(/^helm upgrade .*$/gm)].map(([line]) => ({ page, line, text }))
  })
  it('there are lines with helm upgrade in the docs', () => assert.ok(lines.length >= 3, `${lines.length}`))
  for (const { page, line, text } of lines)
    it(`${page}: ${line}: the values of the release stay`, async () => {
      // The file that the line names stands below it.
      for (const [, name = ''] of line.matchAll(/--values (\S+)/g)) {
        const [, yaml] = new RegExp(`^\`\`\`yaml\\n# ${name}\\n(.*?)^\`\`\``, 'ms').exec(text) ?? []
        writeFileSync(join(dir, name), yaml ?? assert.fail(`${page} has no block of ${name}`))
      }
      const [, , ...args] = line.replace('conf/chart', CHART).replace(/ +#.*/, '').split(/ +/)
      await install('plumb', [...RUNS, OWN, 'agent.probe-interval=0', 'metrics.enabled=true'])
      await must('upgrade', ...args)
      const { 'agent.yaml': agent = '', 'net-conf.json': network = '' } = await configured('plumb')
      assert.match(network, /10\.1\.0\.0\/16/)
      for (const want of [/^probe-interval: 0$/m, /^service-proxy: "kubernetes"$/m, /^healthz-ip: /m])
        assert.match(agent, want)
      // A bridge, which is not what the chart has by default.
      assert.doesNotMatch(agent, /^pods:/m)
    })

  it('the token of an agent changes its own Node and writes Events of it, and no other Node’s', async () => {
    const { url, caFile } = server()
    // In another namespace than that of the plain manifest.
    await install('net', [])
    const tokens = new Map<string, string>()
    for (const [n, name] of ['node-a', 'node-b'].entries()) {
      await server().create(name, [`10.244.${n}.0/24`])
      tokens.set(name, await tokenOf(server(), 'net', name))
    }
    const token = (node: string) => tokens.get(node) as string
    const patch = async (node: string, bearer: string, what = 'nodes', change: object = annotated(`by ${bearer}`)) => {
      const answer = await fetch(`${url}/api/v1/${what}/${node}/status`, {
        method: 'PATCH',
        headers: { Authorization: `Bearer ${bearer}`, 'Content-Type': 'application/strategic-merge-patch+json' },
        body: JSON.stringify(change),
        tls: { ca: readFileSync(caFile) },
      } as RequestInit)
      return { status: answer.status, text: await answer.text() }
    }
    const noted = async (node: string) =>
      ((await server().get(node)) as { metadata: { annotations?: Record<string, string> } } | undefined)?.metadata
        .annotations?.['noted']

    // The server follows its policies with a delay.
    await until(async () => (await patch('node-b', token('node-a'))).status === 403, 30_000)
    const before = await noted('node-b')
    const refused = await patch('node-b', token('node-a'))
    assert.match(refused.text, /the token of plumb on Node node-a may not change Node node-b/)
    const condition = { type: 'NetworkUnavailable', status: 'True', reason: 'no', message: 'no' }
    for (const change of [
      annotated('again'),
      { metadata: { annotations: published(9) } },
      { status: { conditions: [condition] } },
    ])
      assert.equal((await patch('node-b', token('node-a'), 'nodes', change)).status, 403)
    assert.equal(await noted('node-b'), before)
    for (const node of ['node-a', 'node-b']) {
      assert.equal((await patch(node, token(node), 'nodes', annotated(`own ${node}`))).status, 200)
      assert.equal(await noted(node), `own ${node}`)
    }
    // A token that is bound to no pod names no Node.
    const unbound = await patch('node-a', await tokenOf(server(), 'net'))
    assert.deepEqual([unbound.status, /token names no Node/.test(unbound.text)], [403, true])

    // What the agent itself writes.
    const kubeconfig = join(dir, 'node-a')
    writeFileSync(kubeconfig, kubeconfigOf(url, caFile, `token: ${token('node-a')}`))
    const signal = AbortSignal.timeout(patient(60_000))
    const own = storeOf(kubeconfig, 'node-a')
    await own.claim(draft('node-a', 1), await own.config(signal), signal)
    const other = storeOf(kubeconfig, 'node-b')
    await assert.rejects(other.claim(draft('node-b', 2), await other.config(signal), signal), /403/)
    const events = async () =>
      ((await server().ask('GET', '/api/v1/namespaces/default/events')) as { items: EventObject[] } | undefined)
        ?.items ?? []
    const one: Announcement = { about: { kind: 'Node' }, type: 'Warning', reason: 'DR1', message: 'one' }
    const end = new AbortController()
    for (const node of ['node-a', 'node-b']) {
      const writer = new ClusterEvents(new Api(accessOf({ kubeconfig }), `test/${version}`), node)
      // Twice: the second raises the count.
      for (const _ of [1, 2]) writer.post(one)
      void writer.run(end.signal)
    }
    await until(async () => (await events()).some(({ count }) => count === 2), 30_000)
    // Both writers have been answered: the refused one pauses now.
    const forged = await fetch(`${url}/api/v1/namespaces/default/events`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token('node-a')}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        metadata: { name: 'forged', namespace: 'default' },
        involvedObject: { apiVersion: 'v1', kind: 'Node', name: 'node-b', uid: 'node-b' },
        reportingComponent: 'plumb-agent',
        reportingInstance: 'node-a',
        reason: 'DR1',
        message: 'forged',
        type: 'Warning',
      }),
      tls: { ca: readFileSync(caFile) },
    } as RequestInit)
    assert.equal(forged.status, 403)
    assert.deepEqual([...new Set((await events()).map(({ involvedObject }) => involvedObject.name))], ['node-a'])
    end.abort()
    // Others are not held up: the administrator is no agent.
    await server().annotate('node-b', { noted: 'by the administrator' })
  })
})

interface EventObject {
  readonly count: number
  readonly involvedObject: { readonly name: string }
}

const annotated = (noted: string) => ({ metadata: { annotations: { noted } } })

/** A token of the agents' service account: that of a pod on the node, as the kubelet asks for it, or one of no pod. */
async function tokenOf(api: ApiServer, namespace: string, node?: string): Promise<string> {
  const base = `/api/v1/namespaces/${namespace}`
  const pod =
    node === undefined
      ? undefined
      : ((await api.ask('POST', `${base}/pods`, {
          metadata: { name: `agent-${node}` },
          spec: {
            nodeName: node,
            serviceAccountName: 'plumb',
            automountServiceAccountToken: false,
            containers: [{ name: 'agent', image: 'plumb' }],
          },
        })) as unknown as { metadata: { name: string; uid: string } })
  const bound = pod && { boundObjectRef: { kind: 'Pod', apiVersion: 'v1', ...pick(pod.metadata) } }
  const { status } = (await api.ask('POST', `${base}/serviceaccounts/plumb/token`, {
    kind: 'TokenRequest',
    apiVersion: 'authentication.k8s.io/v1',
    spec: { ...bound },
  })) as unknown as { status: { token: string } }
  return status.token
}

const pick = ({ name, uid }: { readonly name: string; readonly uid: string }) => ({ name, uid })
