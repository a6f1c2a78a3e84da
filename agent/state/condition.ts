import type { Backend } from '../backend/backend.ts'
import type { Probe } from '../backend/probes.ts'
import type { Unreached } from '../backend/unreached.ts'
import type { Choice } from '../backend/uplink.ts'
import type { BgpStatus } from '../bgp/view.ts'
import type { Undoer } from '../kernel/undoer.ts'
import { isSame } from '../lease/families.ts'
import { type Both, encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import { type Durations, noDurations, withDuration } from '../scheduler/durations.ts'
import type { Failure, Failures } from '../scheduler/failures.ts'
import { type LastKnown, whyUncertain } from '../store/last-known.ts'
import type { Snapshot, SubnetStore } from '../store/store.ts'
import {
  BUCKETS,
  type FastPathStatus,
  type Finding,
  type KindCount,
  type Peer,
  type PolicyStatus,
  type Repair,
  type ServicesStatus,
  type Status,
  type TunnelsStatus,
} from './status.ts'

/** A repair, and the part that made it. */
export interface PartRepair extends Repair {
  readonly part: string
}

/** The combined state of the agent's parts. Each part can read the state of the others here. */
export interface NodeState {
  choice?: Choice
  lease?: Lease
  /** The lease after the attempt to write the subnet file. The agent makes rules and routes for this lease. */
  served?: Lease
  /** The reason for a missing lease, or for a lease that is not as wanted. */
  refusal?: string | undefined
  snapshot?: Snapshot
  /** The time of the state from the disk, in milliseconds since 1970. Set until the store has confirmed that state. */
  stale?: number
  /** Every part has completed its work once. */
  isSynced: boolean
  mtu: number
  /** The unreachable peers. `lost` has one sentence per reason. */
  unreached: Unreached
  lost: readonly string[]
  /** The probe result of a peer. `silent` has a sentence when some peers do not answer. */
  probe?: (key: SubnetKey) => Probe | undefined
  silent: readonly string[]
  /** The MTU of the path to a peer, by family, where probes found a smaller one than that of pods. Bytes. */
  pathMtus?: ReadonlyMap<SubnetKey, Both<number>>
  /** Those that routes have. */
  routeMtus?: ReadonlyMap<SubnetKey, Both<number>>
  /** How long answers to probes took. Absent when no peer is probed. */
  probeTimes?: () => Durations
  /** The ages of the last handshakes with peers in seconds, by public key. */
  handshakes?: () => ReadonlyMap<string, number | undefined>
  fights: readonly string[]
  /** The last program that undid rules of the agent. */
  undoer?: Undoer
  /** The number of fights. `fights` names only some of them. */
  fightCount?: number
  /** What the checks of the doctor found. */
  findings: readonly Finding[]
  kinds: Readonly<Record<string, KindCount>>
  repairs: readonly PartRepair[]
  lastError: Repair | undefined
  services?: ServicesStatus
  policy?: PolicyStatus
  /** Why objects of the cluster are not known, or may be out of date, by the part that needs them. */
  unknownObjects?: Readonly<Partial<Record<'policy' | 'services', string | undefined>>>
  bgp?: BgpStatus
  /** Who writes the routes to nodes, as the kernel has it. Absent before the first step. */
  programs?: 'agent' | 'bird'
  /** Asks the kernel, so it is for somebody who reads the status. Absent without such rules. */
  tunnels?: () => TunnelsStatus | undefined
  fastPath?: FastPathStatus
  steps: Durations
}

/** The state of an agent at its start. `stale` is what the last run kept on disk, where the store does not answer. */
export function initialState(stale?: LastKnown): NodeState {
  return {
    ...(stale && { lease: stale.lease, snapshot: { leases: stale.leases, unreadable: [] }, stale: stale.at }),
    isSynced: false,
    mtu: 0,
    unreached: new Map(),
    lost: [],
    silent: [],
    fights: [],
    findings: [],
    kinds: {},
    repairs: [],
    lastError: undefined,
    steps: noDurations(BUCKETS),
  }
}

/** Adds a step with a duration in seconds to the histogram of step times. Returns the new histogram. */
export function withStep(steps: NodeState['steps'], seconds: number): NodeState['steps'] {
  return withDuration(steps, seconds, BUCKETS)
}

/** The number of unreadable entries whose reasons the status has. */
const TOLD = 5

interface Self {
  readonly node: string
  readonly version: string
  readonly store: SubnetStore
  /** The failures of the agent's parts. */
  readonly failures: Pick<Failures, 'all'>
}

/** Whether the node is ready, and the current problems. */
export type Condition = Pick<Status, 'state' | 'ready' | 'reasons' | 'degraded'>

/** The status of an agent that does not know its network yet. `why` says for what the agent waits. */
export function waitingStatus(self: Self, why: string): Status {
  const { connected, error } = self.store.state()
  const reasons = [
    why,
    ...(connected || error === undefined || why.includes(error) ? [] : [error]),
    ...textsOf(self.failures.all(), 'node'),
  ]
  return {
    ...statusOf({ ...self, backend: { type: '' }, conf: {} }, initialState()),
    ...verdict(reasons, textsOf(self.failures.all(), 'part')),
  }
}

/** Judges the state of the node. The cost does not depend on the number of peers. */
export function conditionOf({ store, failures }: Pick<Self, 'store' | 'failures'>, state: NodeState): Condition {
  const { choice, lease, refusal, snapshot, stale, isSynced, lost, silent, fights } = state
  const { connected, error } = store.state()
  const all = failures.all()
  const isAway = !connected && error !== undefined
  const unreadable = snapshot?.unreadable.length ?? 0
  const isStale = stale !== undefined
  const isKnown = lease && snapshot
  const isOld = refusal !== undefined && lease && !isStale && !isAway
  const ending = lease && isStale ? whyUncertain({ at: stale, lease }) : undefined
  const why = refusal ? `: ${refusal}` : ''
  const entries = `${unreadable} ${unreadable > 1 ? 'entries' : 'entry'}`
  const reasons = [
    ...(choice ? [] : ['no uplink was found yet']),
    ...(lease ? [] : [`this node has no subnet yet${why}`]),
    ...(snapshot ? [] : ['the leases of the other nodes are not known yet']),
    ...(isAway && !isKnown ? [error] : []),
    ...(ending === undefined ? [] : [ending]),
    ...textsOf(all, 'node'),
  ]
  const degraded = [
    ...(isAway && isKnown ? [`the store is away, going on with what is known: ${error}`] : []),
    ...(isStale ? [`the network is as it was known at ${new Date(stale).toISOString()}, before the start${why}`] : []),
    ...(isOld ? [`what this node publishes may be old: ${refusal}`] : []),
    ...textsOf(all, 'part'),
    ...lost,
    ...silent,
    ...(unreadable > 0 ? [`${entries} of the store cannot be read`] : []),
    ...fights,
  ]
  return verdict(isSynced || reasons.length > 0 ? reasons : ['the first sync is not done yet'], degraded)
}

function verdict(reasons: readonly string[], degraded: readonly string[]): Condition {
  if (reasons.length > 0) return { state: 'not ready', ready: false, reasons, degraded }
  return { state: degraded.length === 0 ? 'ready' : 'degraded', ready: true, reasons, degraded }
}

function textsOf(failures: readonly Failure[], scope: Failure['scope']): string[] {
  return failures.flatMap((one) => (one.scope === scope ? [one.text] : []))
}

/** Makes the complete status, for people and programs. Reads its arguments, the store's state and the failures. */
export function statusOf(
  self: Self & {
    readonly backend: Pick<Backend, 'type' | 'leaseType' | 'handshakeAge'>
    readonly conf: Pick<NetworkConf, 'v4' | 'v6'>
  },
  state: NodeState,
): Status {
  const { node, version, backend, conf, store } = self
  const { choice, lease, snapshot, stale, mtu, findings, kinds, repairs, lastError, steps } = state
  const { services, policy, bgp, tunnels, undoer, fightCount, probeTimes } = state
  const refusing = tunnels?.()
  const unknown = new Set(Object.values(state.unknownObjects ?? {}).filter((one) => one !== undefined))
  const { unreadable = [] } = snapshot ?? {}
  const own = lease?.subnets ?? {}
  const others: Lease[] = []
  let zone: string | undefined
  for (const one of snapshot?.leases ?? [])
    if (isSame(one.subnets, own)) zone = one.zone
    else others.push(one)
  return {
    node,
    version,
    ...(zone !== undefined && { zone }),
    started: Math.round(performance.timeOrigin),
    network: { ...(conf.v4 ? { v4: conf.v4.network } : {}), ...(conf.v6 ? { v6: conf.v6.network } : {}) },
    subnets: own,
    backend: backend.type,
    mtu,
    uplink: choice && {
      name: choice.uplink.name,
      tunnel: choice.uplink.tunnel,
      advertise: choice.uplink.advertise,
      why: choice.why,
      ...(choice.checksumOffload && { checksumOffload: choice.checksumOffload }),
    },
    store: store.state(),
    ...(stale !== undefined && { stale }),
    ...conditionOf(self, state),
    peers: others.map((one) => peerOf(one, backend, state)),
    unreadable: unreadable.length,
    ...(unreadable.length > 0 && { unreadableWhy: unreadable.slice(0, TOLD) }),
    findings,
    kinds,
    repairs: repairs.map(({ at, what }) => ({ at, what })),
    steps,
    ...(fightCount !== undefined && { fightCount }),
    ...(probeTimes && { probes: probeTimes() }),
    ...(services && { services }),
    ...(policy && { policy }),
    ...(unknown.size > 0 && { unknownObjects: [...unknown] }),
    ...(bgp && { bgp }),
    ...(refusing && { tunnels: refusing }),
    ...(state.fastPath && { fastPath: state.fastPath }),
    ...(state.fights.length > 0 && { fights: { what: state.fights, ...(undoer && { by: undoer }) } }),
    lastError,
  }
}

function peerOf(
  lease: Lease,
  { type, leaseType = type, handshakeAge }: Pick<Backend, 'type' | 'leaseType' | 'handshakeAge'>,
  { unreached, probe, handshakes, routeMtus }: NodeState,
): Peer {
  const { node, subnets, ips, backend, version, zone, isAway } = lease
  const age = handshakes && handshakeAge?.(lease, handshakes())
  const key = unreached.size > 0 || probe ? encodeKey(subnets) : undefined
  const [problem, seen] = key === undefined ? [] : [unreached.get(key), probe?.(key)]
  const routeMtu = key === undefined ? undefined : routeMtus?.get(key)
  return {
    ...(node === undefined ? {} : { node }),
    ...(version === undefined ? {} : { version }),
    ...(zone === undefined ? {} : { zone }),
    ...(isAway && { isAway }),
    subnets,
    ips,
    // A lease may name no backend.
    backend: backend === leaseType ? type : backend || 'none',
    ...(problem === undefined ? {} : { problem }),
    ...(seen === undefined ? {} : { probe: seen }),
    ...(routeMtu === undefined ? {} : { routeMtu }),
    ...(age === undefined ? {} : { handshakeAge: age }),
  }
}
