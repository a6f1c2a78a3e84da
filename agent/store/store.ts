// Where nodes find the network's configuration, their own subnet and each other's. This file is the interface of a store and its errors; each folder beside it is a
// store (`file/`, `etcd/`), and `open.ts`, which is made of the folders, opens one. `claiming.ts` keeps this node's lease, `last-known.ts` what was known before a start.
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import { UnavailableError } from '../scheduler/follow.ts'

/** What a node asks for. */
export interface Draft extends Pick<Lease, 'ips' | 'backend' | 'data'> {
  /** The node's name: the same after a restart, whatever its addresses are. */
  readonly node: string
  /** What tells it from another node of the same name: random, and kept on the node. */
  readonly identity?: string
  /** What it had before (subnet.env): taken again when nobody has it. */
  readonly before?: Both<Cidr>
  /** Nothing but `before` will do: its pods have addresses of it. */
  readonly fixed?: true
}

/** Everything that a store knows, at once. */
export interface Snapshot {
  /** Oldest first. */
  readonly leases: readonly Lease[]
  /** Entries that could not be read: their keys and why. */
  readonly unreadable: readonly { readonly key: string; readonly why: string }[]
}

/** How a store is doing, for status and metrics. Never a secret. */
export interface StoreState {
  readonly name: string
  readonly connected: boolean
  /** What was last wrong, as long as it is. */
  readonly error?: string
  /** When it was last heard of, in milliseconds since 1970. */
  readonly heard?: number
}

/** What a store knows of this node before it claims anything. */
export interface Remembered {
  /** Addresses that somebody gave the node in the store, to be told to peers. */
  readonly addresses: Both<Ip>
  /** What it published last. */
  readonly data: Both<unknown>
}

/** Where nodes find their subnets and each other's. */
export interface SubnetStore {
  /** The network's configuration (net-conf.json). Waits until there is one; asks at least once a second. Throws ValueError for one that is wrong. */
  config(signal: AbortSignal): Promise<NetworkConf>
  /** The node's lease: made on the first call, and the same subnets ever after; called again it renews and publishes what is in the draft. Throws OutOfSubnetsError when all are taken, SubnetTakenError when `fixed` cannot be had, or another node has the name, StoreError when the store does not answer. */
  claim(draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease>
  /** The full set at once, then on every change, never a delta. What comes while nobody takes is folded into one. Goes on by itself when the store is away; ends with the signal. */
  leases(signal: AbortSignal): AsyncIterable<Snapshot>
  /** Gives the node's lease back; nothing held is success. With an identity, what another node of this name holds stays. */
  release(node: string, identity?: string): Promise<void>
  /** What the store knows of this node; absent where it knows nothing beside leases. Throws StoreError. */
  remembered?(signal: AbortSignal): Promise<Remembered>
  /** The node serves its pods now: told to whoever the store tells of it. Throws StoreError. */
  ready?(): Promise<void>
  state(): StoreState
  close(): Promise<void>
}

/** The store does not answer, or not as it should: what was asked can be asked again. */
export class StoreError extends UnavailableError {
  override name = 'StoreError'
}
/** Every subnet of the network is taken. */
export class OutOfSubnetsError extends Error {
  override name = 'OutOfSubnetsError'
}
/** The subnet that this node's pods have addresses of belongs to another, or the node's name does. */
export class SubnetTakenError extends Error {
  override name = 'SubnetTakenError'
}
