// lane: netns
// Tests agent/http/redaction.ts: names that are planted everywhere are in no answer of the status server, and the
// socket tells them.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { deflateRawSync } from 'node:zlib'
import { REDACTED, REFUSED, redactedFailures, redactedSource, redactedState } from '../../../agent/http/redaction.ts'
import { serveHealth } from '../../../agent/http/server.ts'
import { keepFailures } from '../../../agent/scheduler/failures.ts'
import { initialState, type NodeState, statusOf } from '../../../agent/state/condition.ts'
import { Recorder } from '../../../agent/state/recorder.ts'
import type { Status } from '../../../agent/state/status.ts'
import type { Summary } from '../../../agent/state/summary.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { live, policyOf } from '../../support/policy-live.ts'
import { scripted } from '../../support/scripted.ts'
import { statusPage, text } from '../../support/status-page.ts'

const SOCKET = '/run/plumb/agent.sock'
const PORT = 10_271
/** The planted names and addresses. */
const SECRETS = ['hush-space', 'hush-pod', 'hush-policy', 'hush-service', 'hush-box', '10.64.0.77', '10.96.7.7']
const [SPACE, POD, POLICY, SERVICE, BOX, ADDRESS, CLUSTER_IP] = SECRETS as [
  string,
  string,
  string,
  string,
  string,
  string,
  string,
]
const ALL = `${SPACE}/${POD} ${SPACE}/${POLICY} ${SPACE}/${SERVICE} ${BOX} ${ADDRESS} ${CLUSTER_IP}`
const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.1.0', Backend: { Type: 'vxlan' } }
const LATE = 30_000

describe('--status-redact', () => {
  it('names and addresses that are planted in everything are in no answer over TCP, and the socket has them', async () => {
    const recorders = { all: new Recorder(), redacted: new Recorder() }
    const failures = keepFailures(() => {})
    const state = planted()
    for (const part of ['policy', 'services', 'checks', 'links of pods', 'a part of tomorrow']) {
      failures.report(part, [
        { scope: 'part', text: `Cannot program ${ALL}` },
        { scope: 'part', text: `Cannot read ${ALL}` },
      ])
    }
    failures.report('peers', [{ scope: 'part', text: 'route 10.64.9.0/24 of node-9: no such device' }])
    const self = { node: 'node-0', version: '0.1.0', backend: { type: 'vxlan' }, conf: {} }
    const store = { state: () => ({ name: 'etcd', connected: true }) } as never
    const whole = (): Status => statusOf({ ...self, store, failures }, state)
    const status = (): Status => ({
      redacted: REDACTED,
      ...statusOf({ ...self, store, failures: redactedFailures(failures, state.findings) }, redactedState(state)),
    })
    recorders.all.refused(`drop: ${SPACE}/${POD} → ${ADDRESS}`)
    recorders.redacted.refused(REFUSED)
    const source = { ...scripted(), ...secretive(), status: whole, recorder: recorders.all }
    const served = await serveHealth(
      { address: '127.0.0.1', port: PORT, socket: SOCKET },
      source,
      failures,
      redactedSource(source, { status, recorder: recorders.redacted }),
    )
    try {
      const base = `http://127.0.0.1:${PORT}`
      const paths = await pathsOf(base)
      assert.ok(paths.length > 12, paths.join(' '))
      for (const path of paths) assertSilent(await bodyOf(`${base}${path}`), path)
      const onSocket = await Promise.all(paths.map((path) => bodyOf(`http://agent${path}`, SOCKET)))
      for (const secret of SECRETS) assert.ok(onSocket.join('').includes(secret), secret)

      const told = JSON.parse(await bodyOf(`${base}/status`)) as Status
      assert.deepEqual(
        [
          told.redacted,
          told.state === whole().state,
          told.findings,
          told.repairs.map(({ what }) => what),
          told.fights?.what,
        ],
        [
          REDACTED,
          true,
          [
            {
              code: 'DR49',
              title: 'a Service has no endpoints',
              severity: 'warning',
              text: 'The check DR49 finds: a Service has no endpoints',
              commands: ['plumb doctor DR49'],
            },
          ],
          ['object of policy', 'route 10.64.2.0/24 dev flannel.1'],
          ['2 objects are changed by another program again and again; plumb status on the node names them'],
        ],
      )
      assert.ok(told.degraded.includes('policy: 2 problems; plumb status on the node names them'))
      assert.ok(told.degraded.includes('route 10.64.9.0/24 of node-9: no such device'))
      assert.deepEqual([told.policy?.policies, told.services?.services, told.tunnels?.strangers], [7, 9, []])
      const counts = await bodyOf(`${base}/metrics`)
      assert.match(counts, /^plumb_policy_packets_total\{direction="ingress",action="deny",policies=""\} 5$/m)
      assert.match(await bodyOf(`${base}/log`), new RegExp(REFUSED))
      const summary = JSON.parse(await bodyOf(`${base}/summary?row`)) as Summary
      assert.deepEqual([summary.policies, summary.pods, summary.services?.services], [10, { all: 4, closed: 1 }, 9])
    } finally {
      served.stop()
    }
  })

  describe('on the page', () => {
    const { policy } = planted()
    const served = statusPage(10_272, { redacted: REDACTED, ...(policy && { policy }) })
    it('says in the agent’s sentence what is left out, also where pods, policy and Services would be', async () => {
      for (const view of ['', '#/pods', '#/policy', '#/services'])
        assert.equal(await text(await served.visit(view), 'main .empty'), REDACTED)
      const plain = await served.visit('', { javaScriptEnabled: false })
      assert.match(await plain.content(), /--status-redact/)
    })
  })

  it(
    'a real agent with policies: no answer over TCP names a pod, a namespace or a policy, also after a refused packet',
    inCluster(
      1,
      (cluster) => [
        ...fileStore(cluster, CONF),
        `--network-policy=${join(cluster.dir, 'manifests')}`,
        '--policy-log=on',
        '--status-redact',
        '--status-address=127.0.0.1:9469',
      ],
      async ({ nodes: [one], dir }, test) => {
        test.timeout(120_000)
        const node = one as Node
        const names = ['hushone', 'hushtwo']
        const fixture = await live(node, join(dir, 'manifests'), names)
        try {
          fixture.write('space.yaml', { kind: 'Namespace', metadata: { name: 'x' } })
          fixture.write('pods.yaml', ...names.map((name) => fixture.pod(name)))
          fixture.write('guard.yaml', policyOf('hushguard', { podSelector: {}, ingress: [] }))
          const agent = node.agent(`--policy-socket=${join(dir, 'policy.sock')}`)
          await agent.ready(60_000)
          await until(async () => !(await fixture.passes('hushone', 'hushtwo')), LATE)
          const unix = join(node.dir, 'agent.sock')
          await until(async () => {
            await fixture.passes('hushone', 'hushtwo')
            return (await bodyOf('http://agent/log', unix)).includes('x/hushone')
          }, LATE)
          const curl = async (path: string) => {
            const url = `http://127.0.0.1:9469${path}`
            const { stdout } = await node.ns.exec([
              'curl',
              '-s',
              '-N',
              '-m',
              path.startsWith('/events') ? '2' : '20',
              url,
            ])
            return stdout
          }
          await until(async () => (await curl('/log')).includes(REFUSED), LATE)
          const secrets = [
            /hush/,
            new RegExp(
              names
                .map((name) => fixture.ip(name))
                .join('|')
                .replaceAll('.', '\\.'),
            ),
          ]
          const listed = (await curl('/nothing')).match(/\/\S*/g) ?? []
          for (const path of [...listed, ...QUERIES]) {
            const body = await curl(path)
            assert.ok(body.length > 0, path)
            // The page's own text has no secret of a node.
            for (const secret of secrets) assert.doesNotMatch(body, secret, path)
          }
          const told = JSON.parse(await curl('/status')) as Status
          assert.deepEqual([told.redacted, told.policy?.policies, told.policy?.pods], [REDACTED, 1, 2])
          const all = await Promise.all(['/policy', '/pods', '/log'].map((path) => bodyOf(`http://agent${path}`, unix)))
          assert.match(all.join(''), /x\/hushguard/)
        } finally {
          await fixture.end()
        }
      },
    ),
  )
})

const DRAFT = 'kind: NetworkPolicy\nmetadata: {name: a, namespace: x}\nspec: {podSelector: {}}'
const QUERIES = [
  `/policy/compare?drafts=${deflateRawSync(DRAFT).toString('base64url')}`,
  '/summary?row',
  `/pod?name=${SPACE}%2F${POD}`,
  `/policy/cell?from=${SPACE}&to=${SPACE}`,
  '/peer?key=10.64.1.0-24',
  '/past?peer=10.64.1.0-24',
]

// All that the server has, by its own word, and with queries.
async function pathsOf(base: string): Promise<string[]> {
  return [...((await bodyOf(`${base}/nothing`)).match(/\/\S*/g) ?? []), ...QUERIES]
}

function assertSilent(body: string, path: string): void {
  assert.ok(body.length > 0, path)
  for (const secret of SECRETS) assert.ok(!body.includes(secret), `${path} has ${secret}: ${body.slice(0, 2000)}`)
}

// Of a stream, what comes at once.
async function bodyOf(url: string, unix?: string): Promise<string> {
  const end = new AbortController()
  const answer = await fetch(url, { signal: end.signal, ...(unix !== undefined && { unix }) })
  if (!url.includes('/events')) return answer.text()
  const reader = answer.body?.getReader()
  let all = ''
  while (reader && !/event: \w+\n[\s\S]*\n\n/.test(all)) {
    const { value } = await reader.read()
    all += new TextDecoder().decode(value)
  }
  end.abort()
  return all
}

function planted(): NodeState {
  const steps = { count: 1, sum: 0, buckets: [] }
  return {
    ...initialState(),
    isSynced: true,
    fights: [`object of ${ALL}`, 'another one'],
    fightCount: 2,
    undoer: { name: POD },
    findings: [
      {
        code: 'DR49',
        title: 'a Service has no endpoints',
        severity: 'warning',
        text: `The Service ${ALL} has none`,
        commands: [`kubectl -n ${SPACE} get endpointslices`],
      },
    ],
    repairs: [
      { at: 1, what: `element ${ALL}`, part: 'policy' },
      { at: 2, what: 'route 10.64.2.0/24 dev flannel.1', part: 'peers' },
    ],
    lastError: { at: 3, what: `Cannot program ${ALL}` },
    services: {
      services: 9,
      frontends: 9,
      endpoints: 9,
      programming: steps,
      forgotten: 0,
      sync: { took: steps, services: 9, slices: 9 },
    },
    policy: {
      policies: 7,
      clusterPolicies: 3,
      pods: 4,
      selected: { ingress: 1, egress: 1 },
      closed: 1,
      refused: 0,
      steps,
    },
    tunnels: () => ({ nodes: 3, refused: 8, lately: 8, strangers: [parseIp(ADDRESS)] }),
  }
}

function secretive() {
  const ip = parseIp(ADDRESS)
  const names = [`${SPACE}/${POLICY}`]
  const pod = { pod: `${SPACE}/${POD}`, addresses: [ip], isClosed: false, ingress: names, egress: names }
  const side = { isolatedBy: names, rules: [] }
  const count = { what: 'deny', side: 'ingress', packets: 5, bytes: 9, policies: names } as const
  return {
    services: () => [
      {
        namespace: SPACE,
        name: SERVICE,
        notes: [],
        ports: [
          {
            name: 'web',
            addresses: [`${CLUSTER_IP}:80/TCP`],
            endpoints: [{ address: `${ADDRESS}:8080`, isLocal: true }],
          },
        ],
      },
    ],
    policy: () => [pod],
    pods: async () => [{ ...pod, container: BOX, ifname: 'eth0', hostPorts: [] }],
    pod: () => ({ ...pod, ingress: side, egress: side }),
    policyMatrix: () => ({ namespaces: [SPACE], rows: ['o'] }),
    policyCell: () => ({ pairs: [{ from: pod.pod, to: pod.pod, ports: [] }], more: 0 }),
    policyComparison: () => ({
      drafts: [],
      namespaces: [{ from: `${SPACE}`, to: `${SPACE}`, opened: 1, closed: 0 }],
      pairs: [],
      more: 0,
      isolation: [{ pod: pod.pod, side: 'ingress' as const, isIsolated: true }],
    }),
    policyCounts: async () => ({ counts: [count], unknownAddress: 0 }),
  }
}
