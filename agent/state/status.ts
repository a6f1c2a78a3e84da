import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { ChecksumOffload } from '../backend/checksum-offload.ts'
import type { Probe } from '../backend/probes.ts'
import type { BgpStatus } from '../bgp/view.ts'
import type { Undoer } from '../kernel/undoer.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { Durations } from '../scheduler/durations.ts'
import type { StoreState } from '../store/store.ts'

/** The counts of one kind of kernel object: wanted objects, existing objects, and objects repaired since the start. */
export interface KindCount {
  readonly wanted: number
  readonly programmed: number
  readonly repaired: number
}

/** A peer as this node sees it. */
export interface Peer extends Pick<Lease, 'node' | 'subnets' | 'ips' | 'backend' | 'version' | 'zone' | 'isAway'> {
  /**
   * The reason why its pods are unreachable from this node. Absent when all kernel objects of the peer are programmed.
   */
  readonly problem?: string
  /** The result of the probes. Absent when the agent does not probe the peer. */
  readonly probe?: Probe
  /** The MTU of its routes in bytes, where the path takes smaller packets than pods may send. Absent else. */
  readonly routeMtu?: Both<number>
  /** The age of the last handshake of WireGuard, in seconds. Absent without one. */
  readonly handshakeAge?: number
}

/** A repair: its description and its time in milliseconds since 1970. */
export interface Repair {
  readonly at: number
  readonly what: string
}

/** The Services of this node. */
export interface ServicesStatus {
  readonly services: number
  /** Addresses and ports at which clients ask. */
  readonly frontends: number
  /** Endpoints, counted once for each frontend that leads to them. */
  readonly endpoints: number
  /** The time from the change of an EndpointSlice to the kernel, by `PROGRAMMING_BUCKETS`. */
  readonly programming: Durations
  /** UDP connections to former endpoints that were forgotten. */
  readonly forgotten: number
  /** The steps that took changes of objects to the kernel. */
  readonly sync: ServicesSync
}

/** How changes of Services and slices come to the kernel, as kube-proxy counts it. Times are milliseconds since 1970. */
export interface ServicesSync {
  /** How long the steps took, by `SYNC_BUCKETS`. */
  readonly took: Durations
  /** When the kernel had all changes last, and when the last change came. Absent as long as there was none. */
  readonly doneAt?: number
  readonly queuedAt?: number
  /** Changed objects so far. */
  readonly services: number
  readonly slices: number
}

/** NetworkPolicy on this node. */
export interface PolicyStatus {
  readonly policies: number
  readonly clusterPolicies: number
  /** Pods of this node, and those of them that a policy selects, by direction. */
  readonly pods: number
  readonly selected: { readonly ingress: number; readonly egress: number }
  /** Pods whose object is not known yet. All of their packets are refused. */
  readonly closed: number
  /** Objects that cannot be read. All others are enforced. */
  readonly refused: number
  /** How long steps took, from changed objects to the kernel. */
  readonly steps: Durations
}

/** What keeps tunnelled packets of strangers from this node. */
export interface TunnelsStatus {
  /** The addresses from which tunnelled packets are taken, of this node and of all leases. */
  readonly nodes: number
  /** The packets that were refused since the table was loaded, at most since the start of the node. */
  readonly refused: number
  /** Those of the last ten minutes, at most since the start of the agent. */
  readonly lately: number
  /**
   * The addresses whose packets were refused in the last ten minutes, and that still have no lease after a while. 64 per
   * family at most.
   */
  readonly strangers: readonly Ip[]
}

/**
 * The fast path of packets between pods (docs/fast-path.md). `unavailable`: this kernel has none, and all packets go by
 * the rules.
 */
export interface FastPathStatus {
  readonly state: 'on' | 'off' | 'unavailable'
  /** What nft said when the kernel has none, or why it is off when no setting says so. */
  readonly why?: string
  /** The links that take part. */
  readonly links?: number
  /** The pods of this node that take part, and those that do not. */
  readonly pods?: number
  readonly slowPods?: number
  /** How often all connections were sent back to the rules, since the start of the agent. */
  readonly renewals?: number
  /** The connections that took it at the last count. Absent before the first count, and while nobody can count. */
  readonly flows?: number
}

/** How bad a finding is. `error`: packets are lost, or pods cannot start. `warning`: they will be, or only some. */
export type Severity = 'error' | 'warning'

/** A fault that a check of the doctor found on this node. */
export interface Finding {
  /** The check, such as `DR1`. `plumb doctor DR1` makes it again. */
  readonly code: string
  readonly title: string
  readonly severity: Severity
  /** What is wrong with the value that was seen, and what does not work because of it. One sentence. */
  readonly text: string
  /** The commands that mend it, each one line for a shell. */
  readonly commands: readonly string[]
}

/** The complete public state of the agent at one moment. It is plain data without secrets. */
export interface Status {
  /** What is left out of it, in one sentence. Absent when nothing is. */
  readonly redacted?: string
  readonly node: string
  readonly version: string
  /** The zone of this node (its label `topology.kubernetes.io/zone`). Only Kubernetes tells it. */
  readonly zone?: string
  /** Milliseconds since 1970. */
  readonly started: number
  readonly network: Both<Cidr>
  readonly subnets: Both<Cidr>
  readonly backend: string
  /** The MTU of the pods' links, in bytes. */
  readonly mtu: number
  readonly uplink:
    | {
        readonly name: string
        readonly tunnel: Both<string>
        readonly advertise: Both<string>
        readonly why: string
        /** Absent with a backend that leaves the checksums of tunnelled packets to the kernel. */
        readonly checksumOffload?: ChecksumOffload
      }
    | undefined
  readonly store: StoreState
  /**
   * The time of the network state from the disk, in milliseconds since 1970. Present until the store confirms the state
   * after a start.
   */
  readonly stale?: number
  /** In state `degraded`, pods can start and the node serves them, but there is another problem. */
  readonly state: 'ready' | 'degraded' | 'not ready'
  /** True in the states `ready` and `degraded`. Then `/readyz` answers 200, except while a part is stuck in a step. */
  readonly ready: boolean
  /** The reasons why the node is not ready. They concern the whole node. */
  readonly reasons: readonly string[]
  /** The other problems. They concern single peers, the store or other programs. */
  readonly degraded: readonly string[]
  /** What the checks of the doctor found, errors first. Their sentences are in `reasons` or `degraded`, too. */
  readonly findings: readonly Finding[]
  readonly peers: readonly Peer[]
  readonly unreadable: number
  /** Why, for the first five of them: the key of the entry and the reason. */
  readonly unreadableWhy?: readonly { readonly key: string; readonly why: string }[]
  /** The counts by kind: link, addr, route, neigh, tunnel, nexthop, nft. */
  readonly kinds: Readonly<Record<string, KindCount>>
  /** The last hundred repairs, newest last. */
  readonly repairs: readonly Repair[]
  readonly steps: Durations
  /** The number of objects that another program changes again and again. Absent while the agent waits for its network. */
  readonly fightCount?: number
  /** How long answers to probes took, by `PROBE_BUCKETS`. Absent when no peer is probed. */
  readonly probes?: Durations
  /** The Services of this node. Absent when the agent serves none. */
  readonly services?: ServicesStatus
  /** NetworkPolicy on this node. Absent when it is not enforced. */
  readonly policy?: PolicyStatus
  /**
   * Why objects of the cluster are not known, or may be out of date, one sentence each. Absent when all are known. The
   * sentences are in `reasons` or `degraded`, too.
   */
  readonly unknownObjects?: readonly string[]
  /** BGP on this node. Absent without `--bgp-config`. */
  readonly bgp?: BgpStatus
  /** Absent when tunnelled packets are taken from anywhere, and with a backend that needs no such rules. */
  readonly tunnels?: TunnelsStatus
  /** Absent before the first step. */
  readonly fastPath?: FastPathStatus
  /**
   * What other programs change again and again, one sentence each, and the last one that undid rules of nft. Absent when
   * nobody does. The sentences are in `degraded`, too.
   */
  readonly fights?: { readonly what: readonly string[]; readonly by?: Undoer }
  readonly lastError: Repair | undefined
}

/** The upper bounds of the step-time histogram, in seconds. */
export const BUCKETS: readonly number[] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
/** The upper bounds of the histogram of programming times, in seconds: those of kube-proxy (pkg/proxy/metrics). */
export const PROGRAMMING_BUCKETS: readonly number[] = [
  0.25,
  0.5,
  ...range(1, 59, 1),
  ...range(60, 115, 5),
  ...range(120, 300, 30),
]

/** The upper bounds of the histogram of sync times, in seconds: those of kube-proxy (pkg/proxy/metrics). */
export const SYNC_BUCKETS: readonly number[] = Array.from({ length: 15 }, (_, i) => 0.001 * 2 ** i)

function range(first: number, last: number, step: number): number[] {
  return Array.from({ length: (last - first) / step + 1 }, (_, i) => first + i * step)
}
