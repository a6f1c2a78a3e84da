// lane: long
// Tests agent/scheduler/spans.ts and agent/telemetry/otlp.ts: the spans of the agent's own work at a collector.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import type { OtlpSpan } from '../../../agent/telemetry/otlp.ts'
import { collector } from '../../support/collector.ts'
import { until } from '../../support/harness.ts'
import { kubeServer } from '../../support/kube-server.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } }
const LATE = 30_000

describe('spans of the agent', () => {
  it(
    'the agent’s own work: start, steps with what they cause, repairs, the store, the API and probes, each failure with its sentence',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=1'],
      async ({ nodes }) => {
        const [one, two] = nodes as [Node, Node]
        await execa('ip', ['link', 'add', 'name', 'api0', 'type', 'veth', 'peer', 'name', 'api1', 'netns', one.ns.path])
        await execa('ip', ['addr', 'add', '172.31.0.1/24', 'dev', 'api0'])
        await execa('ip', ['link', 'set', 'api0', 'up'])
        await one.ns.ip('addr', 'add', '172.31.0.2/24', 'dev', 'api1')
        await one.ns.ip('link', 'set', 'api1', 'up')
        const api = await kubeServer('172.31.0.1')
        const sink = collector(one.ns)
        const named = (name: string) => sink.spans.filter((span) => span.name === name)
        const of = (span: OtlpSpan | undefined, key: string) => {
          const value = span?.attributes.find((one) => one.key === key)?.value
          return value && Object.values(value)[0]
        }
        const aboveOf = ({ traceId, parentSpanId }: OtlpSpan) =>
          sink.spans.find((span) => span.traceId === traceId && span.spanId === parentSpanId)
        const soon = (what: () => boolean) =>
          until(what, LATE).catch((cause: Error) =>
            assert.fail(`${cause.message}: ${[...new Set(sink.spans.map(({ name }) => name))]}`),
          )
        try {
          const objects = ['--network-policy=kubernetes', `--kubeconfig-file=${api.kubeconfig}`]
          const agent = one.agent(`--otlp-endpoint=${sink.url}`, ...objects)
          const other = two.agent()
          await Promise.all([agent.ready(30_000), other.ready(30_000)])
          const route = async () => (await one.ns.ip('route', 'show', 'proto', '112')).split(' ')[0] ?? ''
          await until(async () => (await route()) !== '', LATE)
          const gone = await route()
          await soon(() => named('GET').length > 0 && named('probe').length > 0 && named('step peers').length > 0)

          const [config] = named('store config')
          assert.deepEqual([config?.kind, of(config, 'plumb.store')], [3, 'file'])
          assert.equal(aboveOf(config as OtlpSpan)?.name, 'start')
          assert.equal(aboveOf(named('store claim')[0] as OtlpSpan)?.name, 'step lease')
          const tool = named('ip').find((span) => aboveOf(span)?.name === 'apply ip') as OtlpSpan
          const apply = aboveOf(tool) as OtlpSpan
          assert.equal(aboveOf(apply)?.name, 'step peers')
          assert.match(JSON.stringify(of(tool, 'process.command_args')), /"ip"/)
          assert.equal(of(tool, 'process.exit.code'), '0')
          const asked = named('GET').find((span) => of(span, 'url.path') === '/api/v1/pods')
          assert.deepEqual(
            ['http.request.method', 'server.address', 'http.response.status_code'].map((key) => of(asked, key)),
            ['GET', '172.31.0.1', '200'],
          )
          assert.ok(named('probe').some((span) => Number(of(span, 'plumb.probes')) > 0))
          for (const { startTimeUnixNano: from, endTimeUnixNano: to } of sink.spans) {
            assert.ok(BigInt(from) <= BigInt(to))
            assert.ok(Math.abs(Number(BigInt(from) / 1_000_000n) - Date.now()) < 300_000)
          }

          await one.ns.ip('route', 'del', gone)
          await soon(() => named('repair').length > 0)
          const repair = named('repair')[0] as OtlpSpan
          assert.deepEqual([of(repair, 'plumb.kind'), aboveOf(repair)?.name], ['route', 'step peers'])
          assert.ok(`${of(repair, 'plumb.object')}`.includes(gone), `${of(repair, 'plumb.object')}`)

          api.fault = () => new Response('the store of the API is full', { status: 500 })
          api.cut()
          await other.stop('SIGKILL')
          await two.ns.ip('link', 'set', 'eth0', 'down')
          // A cluster without ClusterNetworkPolicy answers 404 all the time.
          const refused = /refused GET .*: 500 the store of the API is full/
          await soon(() =>
            [...named('GET'), ...named('WATCH')].some(({ status }) => refused.test(status?.message ?? '')),
          )
          const silent = /^no answer over the overlay from .* of node "n2"/
          await soon(() => named('probe').some(({ status }) => silent.test(status?.message ?? '')))
        } finally {
          sink.stop()
        }
      },
    ),
  ).timeout(120_000)
})
