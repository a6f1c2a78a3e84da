import { AsyncLocalStorage } from 'node:async_hooks'

/** What a span tells besides its name, by OpenTelemetry's names where there are such. Undefined ones are left out. */
export type Attributes = Readonly<Record<string, string | number | readonly string[] | undefined>>

/** A piece of the agent's own work. Times are in milliseconds since 1970. */
export interface AgentSpan {
  /** 16 bytes in hex, the same for all spans of one trace. */
  readonly traceId: string
  /** 8 bytes in hex. */
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  /** `client`: the work is a question to another program over a socket. */
  readonly kind: 'internal' | 'client'
  readonly from: number
  readonly to: number
  readonly attributes: Attributes
  /** Why the work failed, one sentence. */
  readonly error?: string
}

/** What is told of work when it begins, and of its result. */
export interface About<T> {
  readonly kind?: AgentSpan['kind']
  readonly attributes?: Attributes
  /** What the result adds. `error` marks the work as failed though it threw nothing. */
  readonly outcome?: (result: T) => { readonly attributes?: Attributes; readonly error?: string | undefined }
}

interface Open {
  readonly traceId: string
  readonly spanId: string
  isEnded: boolean
}

let taker: ((span: AgentSpan) => void) | undefined
const current = new AsyncLocalStorage<Open>()

/** From now on `take` gets each span when it ends. The returned function ends that. */
export function takeSpans(take: (span: AgentSpan) => void): () => void {
  taker = take
  return () => {
    if (taker === take) taker = undefined
  }
}

/** Whether anybody takes spans. Frequent work asks before it makes what `traced` needs. */
export function isTraced(): boolean {
  return taker !== undefined
}

/**
 * Does work within a span. The span is a child of the one in which it is called, or begins a trace. When nobody takes
 * spans, it only does the work.
 */
export async function traced<T>(name: string, about: About<T>, work: () => Promise<T>): Promise<T> {
  if (!taker) return work()
  const span = begin()
  let outcome: { readonly attributes?: Attributes; readonly error?: string | undefined } = {}
  try {
    const result = await current.run(span.open, work)
    outcome = about.outcome?.(result) ?? {}
    return result
  } catch (cause) {
    const { name: type, message } = cause as Error
    outcome = { attributes: { 'error.type': type }, error: message }
    throw cause
  } finally {
    span.end(name, { ...about, attributes: { ...about.attributes, ...outcome.attributes } }, outcome.error)
  }
}

/** Notes work that has just ended and took `ms` milliseconds, as a span in the present one. */
export function noteSpan(name: string, attributes: Attributes, ms = 0, error?: string): void {
  if (taker) begin(clock() - ms).end(name, { attributes }, error)
}

function begin(from = clock()) {
  const outer = current.getStore()
  // Work that goes on after the step that began it has traces of its own.
  const parent = outer?.isEnded ? undefined : outer
  const open: Open = { traceId: parent?.traceId ?? randomHex(16), spanId: randomHex(8), isEnded: false }
  return {
    open,
    end(name: string, { kind = 'internal', attributes = {} }: About<never>, error?: string) {
      open.isEnded = true
      const { traceId, spanId } = open
      const above = parent && { parentSpanId: parent.spanId }
      taker?.({
        ...{ traceId, spanId, ...above, name, kind, from, to: clock(), attributes },
        ...(error !== undefined && { error }),
      })
    },
  }
}

// The time since 1970, in fractions of milliseconds.
function clock(): number {
  return performance.timeOrigin + performance.now()
}

/** Random bytes in hex. */
export function randomHex(bytes: number): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString('hex')
}
