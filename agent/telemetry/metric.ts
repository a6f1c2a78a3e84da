import type { PolicyCounts } from '../policy/counters.ts'
import type { Durations } from '../scheduler/durations.ts'
import type { Status } from '../state/status.ts'
import type { CallCount } from './calls.ts'
import type { SpanCounts } from './otlp.ts'

/** A metric: what it is, where it is described and shown, and how its value is read. */
export interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter' | 'histogram'
  /** The sentence of `# HELP`. */
  readonly help: string
  /** The names of its labels, in their order. Absent when it has none. */
  readonly labels?: readonly string[]
  /** The page of docs/ with its row, and what the row tells. */
  readonly docs: { readonly page: 'status' | 'services' | 'policy' | 'bgp'; readonly tells: string }
  readonly shown: Shown
  /** Undefined, or no sample, when there is nothing to tell. The metric is then left out. */
  read(scene: Scene): number | readonly Sample[] | undefined
}

/**
 * Where people see the value without Prometheus: a view of the page, or `top` for `plumb top`, and the words beside it
 * there. `not` says why it is shown nowhere.
 */
export type Shown = { readonly on: string; readonly as: string } | { readonly not: string }

/** The labels of a sample, its value, and what its name has behind that of the metric, such as `_sum`. */
export type Sample = readonly [labels: Labels, value: number, suffix?: string]
/** Labels by their names. */
export type Labels = Readonly<Record<string, string | number>>

/** What metrics are read from. */
export interface Scene extends Additions {
  readonly status: Status
  readonly usage: Usage
  /** In milliseconds since 1970. */
  readonly now: number
  /** So many peers and BGP sessions have series of their own. */
  readonly most: number
}

/** The resource usage of the agent's process. */
export interface Usage {
  readonly rssBytes: number
  readonly virtualBytes: number
  readonly cpuSeconds: number
  readonly openFiles: number
  /** The soft limit. 2^64 without one, as the client library of Go has it. */
  readonly mostFiles: number
}
/** What is read from the kernel and from files when somebody asks for metrics. */
export interface NodeFigures {
  /** The table of connections. Absent without connection tracking. */
  readonly conntrack?: {
    readonly entries: number
    readonly limit: number
    readonly insertFailed: number
    readonly dropped: number
  }
  /** Packets that the reverse path filter dropped since the start of the node. */
  readonly reversePathDrops: number
  /** The addresses of this node's subnets. Families whose subnet has more than 2^32 addresses are left out. */
  readonly pools: readonly { readonly family: 'ipv4' | 'ipv6'; readonly reserved: number; readonly free: number }[]
  readonly certificates: readonly Certificate[]
}
/** A certificate that the agent uses, and its end in milliseconds since 1970. */
export interface Certificate {
  /** Whom it is for. */
  readonly server: 'etcd' | 'api'
  readonly role: 'client' | 'authority'
  readonly expires: number
}
/** What metrics have besides the status. */
export interface Additions {
  /** The counters of policies. */
  readonly counts?: PolicyCounts | undefined
  readonly figures?: NodeFigures | undefined
  /** The plugin calls on this node. */
  readonly calls?: readonly CallCount[]
  /** The requests to the API server by HTTP status. */
  readonly requests?: ReadonlyMap<string, number>
  /** The spans that went to a collector. */
  readonly spans?: SpanCounts | undefined
  /** Series for every peer, not only for the worst. */
  readonly isPerPeer?: boolean
}

/** The samples of a histogram. `bounds` are the upper limits of its buckets, in seconds. */
export function histogramOf(bounds: readonly number[], durations: Durations, labels: Labels = {}): Sample[] {
  const { buckets, count, sum } = durations
  return [
    ...bounds.map((le, i): Sample => [{ ...labels, le }, buckets[i] ?? 0, '_bucket']),
    [{ ...labels, le: '+Inf' }, count, '_bucket'],
    [labels, sum, '_sum'],
    [labels, count, '_count'],
  ]
}
