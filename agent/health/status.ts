import type { Cidr } from '../../lib/text/ip.ts'
import type { Probe } from '../backend/probes.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { StoreState } from '../store/store.ts'

/** How one kind of kernel object stands: how many there are to be, how many there are, how many had to be put right since the start. */
export interface KindCount {
  readonly wanted: number
  readonly programmed: number
  readonly repaired: number
}

/** A peer as this node sees it. */
export interface Peer extends Pick<Lease, 'node' | 'subnets' | 'ips' | 'backend'> {
  /** Why its pods cannot be reached from here; absent when all is programmed. */
  readonly problem?: string
  /** What probes say; absent when it is not asked. */
  readonly probe?: Probe
}

/** Something that was put right: what, and when (milliseconds since 1970). */
export interface Repair {
  readonly at: number
  readonly what: string
}

/** How long steps took: `buckets[i]` counts those of at most `BUCKETS[i]` seconds. */
export interface Durations {
  readonly count: number
  readonly sum: number
  readonly buckets: readonly number[]
}

/** Everything that the agent tells of itself, at one moment; plain data, without a secret. */
export interface Status {
  readonly node: string
  readonly version: string
  /** Milliseconds since 1970. */
  readonly started: number
  readonly network: Both<Cidr>
  readonly subnets: Both<Cidr>
  readonly backend: string
  /** Of pods' links, in bytes. */
  readonly mtu: number
  readonly uplink: { readonly name: string; readonly tunnel: Both<string>; readonly advertise: Both<string>; readonly why: string } | undefined
  readonly store: StoreState
  /** Since when the network is known as it is here, in milliseconds since 1970, when that is from before the start: the store has not said it again yet. */
  readonly stale?: number
  /** `degraded`: pods can start and are served, but something is wrong beside that. */
  readonly state: 'ready' | 'degraded' | 'not ready'
  /** It is not `not ready`: what `/readyz` answers 200 for. */
  readonly ready: boolean
  /** Why it is not ready: what concerns the node. */
  readonly reasons: readonly string[]
  /** What else is wrong: single peers, the store, other programs. */
  readonly degraded: readonly string[]
  readonly peers: readonly Peer[]
  readonly unreadable: number
  /** By kind: link, addr, route, neigh, tunnel, nexthop, nft. */
  readonly kinds: Readonly<Record<string, KindCount>>
  /** The last hundred, newest last. */
  readonly repairs: readonly Repair[]
  readonly steps: Durations
  readonly lastError: Repair | undefined
}

/** Upper bounds of the step-time histogram, in seconds. */
export const BUCKETS: readonly number[] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
