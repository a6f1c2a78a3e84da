import { log } from '../../lib/os/log.ts'
import { takeSpans } from '../scheduler/spans.ts'
import { type CallCount, Calls } from './calls.ts'
import { type SpanCounts, SpanExporter } from './otlp.ts'

/** What the agent records of plugin calls and of its own work, besides its status. */
export interface Telemetry {
  calls(): readonly CallCount[]
  /** The spans so far. Undefined when they go nowhere. */
  spans(): SpanCounts | undefined
  /** Listens for plugin calls beside the agent's socket, and sends spans, until the signal. */
  run(socket: string, life: AbortSignal): Promise<{ stop(): void }>
}

/** Begins to record. `endpoint` is a collector's base. Spans of the agent's own work are taken from now on. */
export function openTelemetry(
  endpoint: string | undefined,
  self: { readonly node: string; readonly version: string },
): Telemetry {
  const exporter = endpoint === undefined ? undefined : new SpanExporter(endpoint, self)
  const calls = new Calls(exporter && ((report) => exporter.takeCall(report)))
  const end = exporter && takeSpans((span) => exporter.take(span))
  return {
    calls: () => calls.counts(),
    spans: () => exporter?.counts(),
    async run(socket, life) {
      const heard = await hearing(calls, socket)
      const sending = exporter?.run(life)
      return {
        stop() {
          heard?.stop()
          void sending?.finally(end)
        },
      }
    },
  }
}

// A node needs no counts of its calls. A second agent of this node leaves them to the first.
async function hearing(calls: Calls, socket: string): Promise<{ stop(): void } | undefined> {
  try {
    return await calls.listen(socket)
  } catch (cause) {
    log(`agent: does not hear of plugin calls: ${(cause as Error).message}`)
    return undefined
  }
}
