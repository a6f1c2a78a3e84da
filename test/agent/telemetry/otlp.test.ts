// lane: quick
// Tests agent/telemetry/otlp.ts and agent/telemetry/calls.ts.
import assert from 'node:assert/strict'
import { type AgentSpan, isTraced, noteSpan, takeSpans, traced } from '../../../agent/scheduler/spans.ts'
import { Calls } from '../../../agent/telemetry/calls.ts'
import { SpanExporter, spansOf } from '../../../agent/telemetry/otlp.ts'
import type { Report } from '../../../lib/verbs/report.ts'
import fc from '../../support/properties.ts'

const TRACE = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
const REPORT: Report = {
  plugin: 'bridge',
  verb: 'ADD',
  at: 1_700_000_000_123,
  ms: 12.5,
  trace: {
    parent: TRACE,
    state: 'vendor=1',
    container: 'c1',
    ifname: 'eth0',
    pod: 'x/a',
    spans: [
      { name: 'ip', from: 0.5, to: 4.25, argv: ['ip', '-batch', '-'] },
      { name: 'parse', from: 0.25, to: 2 },
      { name: 'wire', from: 5, to: 6 },
    ],
  },
}

describe('spans of a plugin call', () => {
  it('the call under the runtime’s span, its phases in it, and a tool in the phase that started it', () => {
    let ids = 0
    const spans = spansOf(REPORT, () => String(++ids).padStart(16, '0'))
    const [call, ip, parse, wire] = spans
    assert.deepEqual(
      spans.map(({ name, spanId, parentSpanId }) => [name, spanId, parentSpanId]),
      [
        ['bridge ADD', '0000000000000001', 'b'.repeat(16)],
        ['ip', '0000000000000004', '0000000000000002'],
        ['parse', '0000000000000002', '0000000000000001'],
        ['wire', '0000000000000003', '0000000000000001'],
      ],
    )
    assert.ok(spans.every(({ traceId }) => traceId === 'a'.repeat(32)))
    assert.deepEqual(
      [call?.startTimeUnixNano, call?.endTimeUnixNano, parse?.startTimeUnixNano, wire?.endTimeUnixNano],
      ['1700000000123000000', '1700000000135500000', '1700000000123250000', '1700000000129000000'],
    )
    assert.deepEqual(ip?.attributes, [
      {
        key: 'process.command_args',
        value: { arrayValue: { values: ['ip', '-batch', '-'].map((stringValue) => ({ stringValue })) } },
      },
    ])
    assert.deepEqual(call?.attributes.at(-1), { key: 'k8s.pod.name', value: { stringValue: 'a' } })
    assert.equal(call?.status, undefined)
  })
  it('a failed call has its code and its error', () => {
    const trace = { ...(REPORT.trace as NonNullable<Report['trace']>), error: 'no address is left' }
    const [call] = spansOf({ ...REPORT, code: 11, trace }, () => '1'.repeat(16))
    assert.deepEqual(call?.status, { code: 2, message: 'no address is left' })
    assert.deepEqual(call?.attributes.at(-1), { key: 'cni.error.code', value: { intValue: '11' } })
  })
})

describe('spans of the agent', () => {
  const recorded = async (work: () => Promise<unknown>) => {
    const spans: AgentSpan[] = []
    const end = takeSpans((span) => spans.push(span))
    await work()
    end()
    return spans
  }
  it('work within work is in one trace; what goes on after its step begins its own', async () => {
    let late = Promise.resolve()
    const inner = () => traced('tool', { outcome: (n: number) => ({ attributes: { n } }) }, async () => 7)
    const spans = await recorded(async () => {
      await traced('step', { attributes: { part: 'a' } }, async () => {
        late = Promise.resolve().then(async () => {
          await Bun.sleep(5)
          noteSpan('late', {})
        })
        await Promise.all([inner(), inner()])
        noteSpan('repair', { kind: 'route' }, 2)
      })
      await late
    })
    const [one, two, repair, step, after] = spans
    assert.deepEqual(
      spans.map(({ name, attributes }) => [name, attributes]),
      [
        ['tool', { n: 7 }],
        ['tool', { n: 7 }],
        ['repair', { kind: 'route' }],
        ['step', { part: 'a' }],
        ['late', {}],
      ],
    )
    for (const child of [one, two, repair]) {
      assert.deepEqual([child?.traceId, child?.parentSpanId], [step?.traceId, step?.spanId])
      assert.match(child?.spanId ?? '', /^[0-9a-f]{16}$/)
    }
    assert.deepEqual([step?.parentSpanId, after?.parentSpanId], [undefined, undefined])
    assert.notEqual(after?.traceId, step?.traceId)
    assert.ok(repair && Math.abs(repair.to - repair.from - 2) < 1)
  })
  it('failed work has its sentence, and its error goes on', async () => {
    const failing = () => Promise.reject(new RangeError('no subnet is left'))
    const spans = await recorded(() => assert.rejects(traced('step', {}, failing), RangeError))
    assert.deepEqual(
      spans.map(({ error, attributes }) => [error, attributes]),
      [['no subnet is left', { 'error.type': 'RangeError' }]],
    )
  })
  it('without a collector nothing is made, and the work is the same', async () => {
    assert.equal(isTraced(), false)
    assert.equal(await traced('step', { outcome: () => assert.fail('asked') }, async () => 7), 7)
  })
  it('more spans than wait are dropped and counted', () => {
    const exporter = new SpanExporter('http://127.0.0.1:9', { node: 'a', version: '1' })
    const span = { traceId: 'a', spanId: 'b', name: 'x', kind: 'internal', from: 0, to: 1, attributes: {} } as const
    for (let i = 0; i < 3000; i++) exporter.take(span)
    assert.deepEqual(exporter.counts(), { sent: 0, dropped: 3000 - 2048 })
  })
})

describe('the counts of plugin calls', () => {
  it('count by plugin, verb and code, and pass on what is traced', () => {
    const traced: Report[] = []
    const calls = new Calls((report) => traced.push(report))
    const { trace: _, ...untraced } = REPORT
    for (const report of [REPORT, untraced, { ...untraced, code: 11, ms: 700 }])
      calls.take(`${JSON.stringify(report)}\n`)
    assert.deepEqual(traced, [REPORT])
    assert.deepEqual(calls.counts(), [
      {
        plugin: 'bridge',
        verb: 'ADD',
        took: { count: 3, sum: 0.725, buckets: [0, 2, 2, 2, 2, 2, 3, 3, 3] },
        errors: new Map([[11, 1]]),
      },
    ])
  })
  it('nothing of any other text, and never more than is bounded', () => {
    const calls = new Calls()
    fc.assert(fc.property(fc.string(), (text) => void calls.take(text)))
    fc.assert(fc.property(fc.json(), (text) => void calls.take(text)))
    for (const wrong of [{ ...REPORT, ms: -1 }, { ...REPORT, verb: 'add' }, { ...REPORT, plugin: '' }, null, []])
      calls.take(JSON.stringify(wrong))
    assert.deepEqual(calls.counts(), [])
    for (let i = 0; i < 1000; i++) calls.take(JSON.stringify({ ...REPORT, plugin: `p${i}` }))
    assert.equal(calls.counts().length, 250)
  })
})
