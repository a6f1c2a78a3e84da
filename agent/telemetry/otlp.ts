import { log } from '../../lib/os/log.ts'
import type { Report } from '../../lib/verbs/report.ts'
import { pause } from '../scheduler/pause.ts'
import { type AgentSpan, randomHex } from '../scheduler/spans.ts'

/** How often spans are sent, in milliseconds. */
const BATCH_MS = 5000
/** The limit of one request, in milliseconds. */
const SEND_MS = 10_000
/** The spans that wait. More are dropped. */
const MOST = 2048
// OTLP 1.x, opentelemetry/proto/trace/v1/trace.proto: SPAN_KIND_INTERNAL, _SERVER and _CLIENT, and STATUS_CODE_ERROR.
const [INTERNAL, SERVER, CLIENT, ERROR] = [1, 2, 3, 2]
const NS_PER_MS = 1_000_000n

/** A span as OTLP has it in JSON: ids in hex, times in nanoseconds since 1970 as text. */
export interface OtlpSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly traceState?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly Attribute[]
  readonly status?: { readonly code: number; readonly message: string }
}
/** The spans since the start of the agent: those that a collector took, and those that it never got. */
export interface SpanCounts {
  readonly sent: number
  /** More came than wait at most, or the collector did not take them. */
  readonly dropped: number
}
interface Attribute {
  readonly key: string
  readonly value:
    | { readonly stringValue: string }
    | { readonly arrayValue: { readonly values: readonly { readonly stringValue: string }[] } }
    | { readonly intValue: string }
}

/** Sends spans to a collector by OTLP/HTTP with JSON. Without a trace it does nothing. */
export class SpanExporter {
  readonly #url: string
  readonly #resource: object
  readonly #newId: () => string
  #waiting: OtlpSpan[] = []
  #dropped = 0
  #counts = { sent: 0, dropped: 0 }
  #logged = ''

  /** `endpoint` is the collector's base, such as `http://127.0.0.1:4318`. */
  constructor(endpoint: string, self: { readonly node: string; readonly version: string }, newId = () => randomHex(8)) {
    this.#url = `${endpoint.replace(/\/+$/, '')}/v1/traces`
    this.#newId = newId
    this.#resource = {
      attributes: [
        text('service.name', 'plumb'),
        text('service.version', self.version),
        text('k8s.node.name', self.node),
      ],
    }
  }

  /** Takes the spans of a call. */
  takeCall(report: Report): void {
    for (const span of spansOf(report, this.#newId)) this.#add(span)
  }

  /** Takes a span of the agent's own work. */
  take(span: AgentSpan): void {
    this.#add(ownSpan(span))
  }

  /** The spans so far. */
  counts(): SpanCounts {
    return { ...this.#counts, dropped: this.#counts.dropped + this.#dropped }
  }

  #add(span: OtlpSpan): void {
    if (this.#waiting.length >= MOST) this.#dropped++
    else this.#waiting.push(span)
  }

  /** Sends what was taken, every five seconds and at the end, until the signal. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(BATCH_MS, signal)
      if (this.#waiting.length > 0) await this.#send()
    }
  }

  // Spans that cannot be sent are lost. A collector that is away must not cost memory.
  async #send(): Promise<void> {
    const spans = this.#waiting
    this.#waiting = []
    const body = { resourceSpans: [{ resource: this.#resource, scopeSpans: [{ scope: { name: 'plumb' }, spans }] }] }
    try {
      const answer = await fetch(this.#url, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        redirect: 'manual',
        signal: AbortSignal.timeout(SEND_MS),
      })
      const said = (await answer.text()).trim().slice(0, 200)
      this.#note(answer.ok ? '' : `${answer.status} ${said}`)
      this.#counts[answer.ok ? 'sent' : 'dropped'] += spans.length
    } catch (cause) {
      this.#counts.dropped += spans.length
      this.#note((cause as Error).message)
    }
    if (this.#dropped > 0) log(`agent: ${this.#dropped} spans were dropped: more than ${MOST} came within 5 s`)
    this.#counts.dropped += this.#dropped
    this.#dropped = 0
  }

  #note(why: string): void {
    if (why !== '' && why !== this.#logged) log(`agent: Cannot send spans to ${this.#url}: ${why}`)
    this.#logged = why
  }
}

/** The spans of a call of a trace: the call, and in it its phases and tools. `newId` makes 8 bytes in hex. */
export function spansOf({ plugin, verb, at, ms, code, trace }: Report, newId: () => string): OtlpSpan[] {
  if (!trace) return []
  const [, traceId = '', parentSpanId = ''] = trace.parent.split('-')
  const time = (since: number) => String(BigInt(Math.round(at)) * NS_PER_MS + BigInt(Math.round(since * 1e6)))
  const spanId = newId()
  const call: OtlpSpan = {
    traceId,
    spanId,
    parentSpanId,
    ...(trace.state !== undefined && { traceState: trace.state }),
    name: `${plugin} ${verb}`,
    kind: SERVER,
    startTimeUnixNano: time(0),
    endTimeUnixNano: time(ms),
    attributes: [
      text('cni.plugin', plugin),
      text('cni.command', verb),
      text('container.id', trace.container),
      text('cni.ifname', trace.ifname),
      ...podOf(trace.pod),
      ...(code === undefined ? [] : [{ key: 'cni.error.code', value: { intValue: String(code) } }]),
    ],
    ...(code !== undefined && { status: { code: ERROR, message: trace.error ?? '' } }),
  }
  const phases = trace.spans.filter(({ argv }) => argv === undefined).map((one) => ({ ...one, id: newId() }))
  const inner = trace.spans.map((one): OtlpSpan => {
    const { name, from, to, argv } = one
    const phase = phases.find((other) => (argv ? other.from <= from && from <= other.to : false))
    const own = phases.find((other) => other.from === from && other.name === name && argv === undefined)
    return {
      traceId,
      spanId: own?.id ?? newId(),
      parentSpanId: phase?.id ?? spanId,
      name,
      kind: INTERNAL,
      startTimeUnixNano: time(from),
      endTimeUnixNano: time(to),
      attributes: attribute('process.command_args', argv),
    }
  })
  return [call, ...inner]
}

function ownSpan({ traceId, spanId, parentSpanId, name, kind, from, to, attributes, error }: AgentSpan): OtlpSpan {
  const time = (ms: number) => String(BigInt(Math.round(ms * 1000)) * 1000n)
  return {
    traceId,
    spanId,
    ...(parentSpanId !== undefined && { parentSpanId }),
    name,
    kind: kind === 'client' ? CLIENT : INTERNAL,
    startTimeUnixNano: time(from),
    endTimeUnixNano: time(to),
    attributes: Object.entries(attributes).flatMap(([key, value]) => attribute(key, value)),
    ...(error !== undefined && { status: { code: ERROR, message: error } }),
  }
}

function attribute(key: string, value: AgentSpan['attributes'][string]): Attribute[] {
  if (value === undefined) return []
  if (typeof value === 'string') return [text(key, value)]
  if (typeof value === 'number') return [{ key, value: { intValue: String(value) } }]
  return [{ key, value: { arrayValue: { values: value.map((stringValue) => ({ stringValue })) } } }]
}

function podOf(pod: string | undefined): Attribute[] {
  if (pod === undefined) return []
  const [namespace = '', name = ''] = pod.split('/')
  return [text('k8s.namespace.name', namespace), text('k8s.pod.name', name)]
}

function text(key: string, stringValue: string): Attribute {
  return { key, value: { stringValue } }
}
