import type { Run } from '../../lib/os/run.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Backend, Facts } from '../backend/backend.ts'
import type { Probes } from '../backend/probes.ts'
import type { Wish } from '../backend/uplink.ts'
import type { Condition } from '../health/condition.ts'
import type { Status } from '../health/status.ts'
import type { Converger } from '../kernel/converge.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import type { Failures } from '../scheduler/failures.ts'
import type { Known } from '../store/last-known.ts'
import type { SubnetStore } from '../store/store.ts'

/** What the agent's parts are given: what does not change while they run, and whom they tell. */
export interface Context {
  readonly node: string
  /** What tells it from another node of its name. */
  readonly identity?: string
  readonly version: string
  readonly store: SubnetStore
  readonly conf: NetworkConf
  readonly backend: Backend
  /** `backend`'s, already read. */
  readonly options: unknown
  readonly facts: Facts
  readonly converger: Converger
  readonly run: Run
  readonly wish: Wish
  /** The subnets that this node had in an earlier life. */
  readonly before?: Both<Cidr>
  readonly firewall: { readonly table: string; readonly masquerade: boolean; readonly keep: readonly Cidr[]; readonly random: boolean; readonly forward: boolean }
  readonly allowOverlap: boolean
  /** What is for the node's own subnet and has no closer route is dropped. */
  readonly blackhole: boolean
  readonly renewMarginMs: number
  /** So long changes are gathered before they are acted on, in milliseconds. */
  readonly quietMs: number
  /** Everything is looked at anew so often, in milliseconds; 0 for never. */
  readonly resyncMs: number
  /** The subnet.env that others read. */
  readonly subnetEnv: string
  /** Writes subnet.env, and what is remembered of it, where they say something else; gives the paths of what it wrote. */
  leased(lease: Lease, mtu: number): readonly string[]
  /** Called once every part has done its work, and again later when it throws. */
  synced(): Promise<void>
  /** Something may have changed; `look` gives how everything stands, when somebody wants to know. */
  changed(look: () => Status): void
  /** What was known before this start, when the store does not answer. */
  readonly stale?: Known
  /** Called with what the store says, whenever it says it. */
  keep(known: Pick<Known, 'lease' | 'leases'>): void
  /** How the node stands, after each step. */
  condition(now: Condition): void
  /** Whether peers answer; absent when nobody asks. */
  readonly probes?: Probes
  /** What goes wrong in the agent's parts. */
  readonly failures: Failures
  log(text: string): void
}
