import type { Backend } from './backend.ts'
import { both, isSame } from './both.ts'
import type { Lease } from './lease.ts'
import type { NetworkConf } from './netconf.ts'
import { BUCKETS, type KindCount, type Peer, type Repair, type Status } from './status.ts'
import type { Snapshot, SubnetStore } from './store.ts'
import type { Choice } from './uplink.ts'

/** Where the loop stands. */
export interface Standing {
  choice?: Choice
  lease?: Lease
  /** Why there is none. */
  refusal?: string | undefined
  snapshot?: Snapshot
  /** The first step that left nothing undone is done. */
  isSynced: boolean
  mtu: number
  /** What the last step could not do, and what it was told that no step can. */
  failures: readonly string[]
  problems: readonly string[]
  fights: readonly string[]
  kinds: Readonly<Record<string, KindCount>>
  repairs: readonly Repair[]
  lastError: Repair | undefined
  steps: { readonly count: number; readonly sum: number; readonly buckets: readonly number[] }
}

/** Of a loop that has not begun. */
export function beginning(): Standing {
  return { isSynced: false, mtu: 0, failures: [], problems: [], fights: [], kinds: {}, repairs: [], lastError: undefined, steps: { count: 0, sum: 0, buckets: BUCKETS.map(() => 0) } }
}

/** The step-time histogram with one more step of so many seconds. */
export function withStep({ count, sum, buckets }: Standing['steps'], seconds: number): Standing['steps'] {
  return { count: count + 1, sum: sum + seconds, buckets: buckets.map((n, i) => n + (seconds <= (BUCKETS[i] as number) ? 1 : 0)) }
}

interface Self {
  readonly node: string
  readonly version: string
  readonly store: SubnetStore
}

/** Of an agent that does not know its network yet: what it waits for. */
export function tellWaiting(self: Self, why: string): Status {
  const { connected, error } = self.store.state()
  return { ...tell({ ...self, backend: { type: '' }, conf: {} }, beginning()), reasons: [why, ...(connected || error === undefined || why.includes(error) ? [] : [error])] }
}

/** All of it, for people and programs. Pure but for the store's own state. */
export function tell({ node, version, backend, conf, store }: Self & { readonly backend: Pick<Backend, 'type'>; readonly conf: Pick<NetworkConf, 'v4' | 'v6'> }, standing: Standing): Status {
  const { choice, lease, refusal, snapshot, isSynced, mtu, failures, problems, fights, kinds, repairs, lastError, steps } = standing
  const { connected, error } = store.state()
  const reasons = [
    ...(choice ? [] : ['no uplink was found yet']),
    ...(lease ? [] : [`this node has no subnet yet${refusal ? `: ${refusal}` : ''}`]),
    ...(snapshot ? [] : ['the leases of the other nodes are not known yet']),
    ...((lease && snapshot) || connected || error === undefined ? [] : [error]),
    ...failures,
    ...fights,
    ...(isSynced || failures.length > 0 ? [] : ['the first sync is not done yet']),
  ]
  const own = lease?.subnets ?? {}
  return {
    node,
    version,
    started: Math.round(performance.timeOrigin),
    network: { ...(conf.v4 ? { v4: conf.v4.network } : {}), ...(conf.v6 ? { v6: conf.v6.network } : {}) },
    subnets: own,
    backend: backend.type,
    mtu,
    uplink: choice && { name: choice.uplink.name, tunnel: choice.uplink.tunnel, advertise: choice.uplink.advertise, why: choice.why },
    store: store.state(),
    ready: reasons.length === 0,
    reasons,
    peers: (snapshot?.leases ?? []).filter((one) => !isSame(one.subnets, own)).map((one) => peerOf(one, problems)),
    unreadable: snapshot?.unreadable.length ?? 0,
    kinds,
    repairs,
    steps,
    lastError,
  }
}

// A problem names the subnet that it is about.
function peerOf({ node, subnets, ips, backend }: Lease, problems: readonly string[]): Peer {
  const problem = problems.length === 0 ? undefined : problems.find((one) => both(subnets).some((subnet) => one.includes(subnet)))
  return { ...(node === undefined ? {} : { node }), subnets, ips, backend, ...(problem === undefined ? {} : { problem }) }
}
