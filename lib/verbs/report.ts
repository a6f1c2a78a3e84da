import type { Env } from '../cni/environment.ts'
import { dial } from '../os/sockets.ts'
import { recordedSpans, recordSpans, type Span } from '../os/spans.ts'

/** The socket at which the agent of this node hears of calls. */
export const CALLS = '/run/plumb/calls.sock'

/** How a call went, as the agent is told. */
export interface Report {
  readonly plugin: string
  /** `ADD` or another CNI_COMMAND. */
  readonly verb: string
  /** When the call began, in milliseconds since 1970, and how long it took. */
  readonly at: number
  readonly ms: number
  /** The CNI code of its error. Absent when it succeeded. */
  readonly code?: number
  readonly trace?: Trace
}
/** A call of a trace, as the runtime hands it on (W3C Trace Context, by libcni in the environment). */
interface Trace {
  /** The value of TRACEPARENT. */
  readonly parent: string
  readonly state?: string
  readonly container: string
  readonly ifname: string
  /** `namespace/name`. Absent outside of Kubernetes. */
  readonly pod?: string
  readonly error?: string
  readonly spans: readonly Span[]
}

// W3C Trace Context, level 1: version, trace id, id of the parent, flags. The last bit of the flags says that somebody
// keeps the trace.
const PARENT = /^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]$/
/** The longest error in a report, in characters. */
const LONGEST = 500

/**
 * Begins the report of a call. The returned function tells the agent how the call ended. It never waits and never
 * throws: a call needs no agent. Spans are recorded only for a call of a trace that somebody keeps.
 */
export function beginReport(
  plugin: string,
  env: Env,
): (error?: { readonly code: number; readonly msg: string }) => void {
  const { CNI_COMMAND: verb = '', TRACEPARENT: parent = '' } = env
  const isTraced = PARENT.test(parent)
  if (isTraced) recordSpans()
  const [at, begun] = [Date.now(), performance.now()]
  return (error) => {
    try {
      const peer = dial(CALLS)
      const report: Report = {
        plugin,
        verb,
        at,
        ms: performance.now() - begun,
        ...(error && { code: error.code }),
        ...(isTraced && { trace: traceOf(parent, env, error?.msg) }),
      }
      peer.say(`${JSON.stringify(report)}\n`)
      peer.close()
    } catch {
      // No agent listens, or it has too much to do.
    }
  }
}

function traceOf(parent: string, env: Env, error: string | undefined): Trace {
  const { TRACESTATE: state, CNI_CONTAINERID: container = '', CNI_IFNAME: ifname = '', CNI_ARGS: args = '' } = env
  const [, namespace] = /(?:^|;)K8S_POD_NAMESPACE=([^;]*)/.exec(args) ?? []
  const [, name] = /(?:^|;)K8S_POD_NAME=([^;]*)/.exec(args) ?? []
  return {
    parent,
    ...(state && { state }),
    container,
    ifname,
    ...(name && { pod: `${namespace ?? ''}/${name}` }),
    ...(error !== undefined && { error: error.slice(0, LONGEST) }),
    spans: recordedSpans(),
  }
}
