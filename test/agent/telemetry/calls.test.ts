// lane: netns
// Tests lib/verbs/report.ts, agent/telemetry/calls.ts and agent/telemetry/otlp.ts: what the agent learns of plugin calls.
import assert from 'node:assert/strict'
import type { OtlpSpan } from '../../../agent/telemetry/otlp.ts'
import { collector } from '../../support/collector.ts'
import { exposition, value } from '../../support/exposition.ts'
import { plugin, until } from '../../support/harness.ts'
import { bridgeConf } from '../../support/network.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const SOCKET = '/run/plumb/agent.sock'
const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } }
const TRACE = 'c'.repeat(32)
const LATE = 30_000
const traced = { TRACEPARENT: `00-${TRACE}-${'d'.repeat(16)}-01` }

const metricsOf = async () => exposition(await (await fetch('http://agent/metrics', { unix: SOCKET })).text())

describe('what the agent learns of plugin calls', () => {
  it(
    'spans of a traced call go to the collector, under the runtime’s span; each call is counted; without the agent a call is the same',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, NETWORK), '--socket', SOCKET],
      async ({ nodes }) => {
        const [node, { ns: pod }] = nodes as [Node, Node]
        await pod.exec(['ip', 'link', 'del', 'eth0'])
        const sink = collector(node.ns)
        const own = bridgeConf({ isGateway: true })
        const call = (command: string, env = {}, conf: object = own) =>
          plugin(
            'bridge',
            {
              command,
              conf,
              containerId: 'spans',
              netns: pod,
              args: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=a',
              env,
            },
            node.ns,
          )
        const ofCalls = () => sink.spans.filter(({ traceId }) => traceId === TRACE)
        try {
          const agent = node.agent(`--otlp-endpoint=${sink.url}`)
          await agent.ready(30_000)
          const added = await call('ADD', traced)
          assert.equal(added.status, 0, added.stdout)
          await until(() => ofCalls().length > 0, LATE)
          const [root, ...inner] = ofCalls() as [OtlpSpan, ...OtlpSpan[]]
          assert.deepEqual([root.name, root.traceId, root.parentSpanId], ['bridge ADD', TRACE, 'd'.repeat(16)])
          const named = (name: string) => inner.filter((one) => one.name === name)
          for (const phase of ['parse', 'open entry', 'take address', 'wire', 'apply wiring'])
            assert.deepEqual(
              named(phase).map(({ parentSpanId }) => parentSpanId),
              [root.spanId],
              phase,
            )
          const tools = named('ip')
          assert.ok(tools.length >= 2, JSON.stringify(inner))
          const phases = inner.filter(({ parentSpanId }) => parentSpanId === root.spanId).map(({ spanId }) => spanId)
          assert.ok(tools.every(({ parentSpanId }) => phases.includes(parentSpanId as string)))
          const refused = await call('ADD', traced, { ...own, ipam: { type: 'static' } })
          assert.equal(refused.status, 1)
          await until(() => ofCalls().some(({ status }) => status !== undefined), LATE)
          const failed = ofCalls().find(({ status }) => status !== undefined)
          assert.deepEqual(failed?.status, { code: 2, message: refused.error.msg })
          const before = ofCalls().length
          assert.equal((await call('DEL')).status, 0)
          assert.equal((await call('DEL', { TRACEPARENT: traced.TRACEPARENT.replace(/1$/, '0') })).status, 0)
          const counts = async () => {
            const found = await metricsOf()
            return [
              value(found, 'plumb_cni_duration_seconds_bucket', { plugin: 'bridge', verb: 'ADD', le: '+Inf' }),
              value(found, 'plumb_cni_duration_seconds_bucket', { plugin: 'bridge', verb: 'DEL', le: '+Inf' }),
              value(found, 'plumb_cni_errors_total', { plugin: 'bridge', verb: 'ADD', code: `${refused.error.code}` }),
            ]
          }
          await until(async () => (await counts()).join() === '2,2,1', LATE).catch(async () =>
            assert.deepEqual(await counts(), [2, 2, 1]),
          )
          // The next batch of spans would have gone by then.
          await Bun.sleep(6000)
          assert.equal(ofCalls().length, before)
          await agent.stop()
          const alone = await call('ADD', traced)
          assert.deepEqual([alone.status, alone.stderr], [0, ''], alone.stdout)
          assert.equal((await call('DEL', traced)).status, 0)
        } finally {
          sink.stop()
        }
      },
    ),
  ).timeout(120_000)

  it(
    'a collector that is away or refuses: one line in the log, and calls as ever',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, NETWORK), '--socket', SOCKET, '--otlp-endpoint=http://127.0.0.1:9'],
      async ({ nodes }) => {
        const [node, { ns: pod }] = nodes as [Node, Node]
        await pod.exec(['ip', 'link', 'del', 'eth0'])
        const agent = node.agent()
        await agent.ready(30_000)
        const conf = bridgeConf({ isGateway: true })
        const call = (command: string) =>
          plugin('bridge', { command, conf, containerId: 'spans', netns: pod, env: traced }, node.ns)
        assert.equal((await call('ADD')).status, 0)
        const said = /Cannot send spans to http:\/\/127\.0\.0\.1:9\/v1\/traces: /g
        await until(() => said.test(agent.log()), LATE)
        assert.equal((await call('DEL')).status, 0)
        await Bun.sleep(6000)
        assert.equal(agent.log().match(said)?.length, 1)
        const found = await metricsOf()
        assert.ok(value(found, 'plumb_spans_total', { outcome: 'dropped' }) > 0)
        assert.equal(value(found, 'plumb_spans_total', { outcome: 'sent' }), 0)
      },
    ),
  ).timeout(120_000)
})
