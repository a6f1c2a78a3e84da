// The stores: a node finds there the configuration of the network, its own subnet and the subnets of its peers. Begin
// to read here: this file has the interface of a store and its errors. Each subfolder is one store (`file/`, `etcd/`,
// `kube/`). `open.ts` opens a store and is generated from the subfolders. `claiming.ts` keeps this node's lease.
// `last-known.ts` keeps the last known state for the next start.

import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { SharedCollection } from '../cluster/shared-collection.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import { UnavailableError } from '../scheduler/follow.ts'
import { makeNotification } from '../scheduler/pause.ts'
import { isTraced, traced } from '../scheduler/spans.ts'

/** The request of a node for a lease. */
export interface Draft extends Pick<Lease, 'ips' | 'backend' | 'data'> {
  /** The node name. It is the same after a restart, whatever the addresses of the node are. */
  readonly node: string
  /** A random value that the node keeps. It tells this node apart from another node of the same name. */
  readonly identity?: string
  /** The subnets from before (subnet.env). The node gets them again if they are free. */
  readonly before?: Both<Cidr>
  /** Only `before` is acceptable, because the pods of the node have addresses of it. */
  readonly fixed?: true
}

/** All content of a store at one moment. */
export interface Snapshot {
  /** Oldest lease first. */
  readonly leases: readonly Lease[]
  /** Keys of unreadable entries, with the reasons. */
  readonly unreadable: readonly { readonly key: string; readonly why: string }[]
}

/** State of a store, for status and metrics. It never contains a secret. */
export interface StoreState {
  readonly name: string
  readonly connected: boolean
  /** The last error, until the store works again. */
  readonly error?: string
  /** Time of the last answer, in milliseconds since 1970. */
  readonly heard?: number
  /** How far the clock of this node is ahead of that of the API server, in milliseconds. */
  readonly clockOffMs?: number
  /**
   * Present when the node serves its pods and its Node object still has the condition NetworkUnavailable. Then no pod
   * comes.
   */
  readonly isUnavailable?: true
}

/** What a store knows of this node before the node claims a lease. */
export interface Remembered {
  /** Addresses that an administrator gave the node in the store. Peers are told these addresses. */
  readonly addresses: Both<Ip>
  /** The backend data that the node published last. */
  readonly data: Both<unknown>
}

/** A store of the network's configuration and of the leases of all nodes. */
export interface SubnetStore {
  /** The file that has the configuration of the network, in a store that reads it from a file. */
  readonly configFile?: string
  /** Judges leases by this configuration. The one of `config` may differ while the node waits for a restart. */
  use?(conf: NetworkConf): void
  /**
   * The configuration of the network (net-conf.json). Waits until there is one, and asks at least once a second. Throws
   * ValueError for an invalid configuration.
   */
  config(signal: AbortSignal): Promise<NetworkConf>
  /**
   * Makes the node's lease on the first call. Later calls renew it with the same subnets and publish the data of the
   * draft. Throws OutOfSubnetsError when all subnets are taken. Throws SubnetTakenError when `fixed` is set and
   * `before` is not available, or another node has the name. Throws StoreError when the store does not answer.
   */
  claim(draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease>
  /**
   * Yields the full set at once and after every change, never a delta. Changes that come while the consumer is busy are
   * merged into one snapshot. The iteration survives outages of the store and ends with the signal.
   */
  leases(signal: AbortSignal): AsyncIterable<Snapshot>
  /**
   * Gives the node's lease back. Succeeds when there is no lease. With an identity, the lease of another node with this
   * name stays.
   */
  release(node: string, identity?: string): Promise<void>
  /** What the store knows of this node; absent where it knows nothing beside leases. Throws StoreError. */
  remembered?(signal: AbortSignal): Promise<Remembered>
  /** Called when the node serves its pods. A store that publishes this does so now. Throws StoreError. */
  ready?(): Promise<void>
  /**
   * Publishes that this node does not serve its pods, with one word in CamelCase and a sentence. `ready` takes it back.
   * Throws StoreError.
   */
  unready?(reason: string, message: string): Promise<void>
  /** The Nodes that the store lists and watches while `leases` runs, for others that read them. */
  readonly nodes?: SharedCollection
  state(): StoreState
  close(): Promise<void>
}

/** The store does not answer, or gives an invalid answer. The caller may try again. */
export class StoreError extends UnavailableError {
  override name = 'StoreError'
}
/** Every subnet of the network is taken. */
export class OutOfSubnetsError extends Error {
  override name = 'OutOfSubnetsError'
}
/** Another node owns the node name, or the subnet that this node's pods have addresses of. */
export class SubnetTakenError extends Error {
  override name = 'SubnetTakenError'
}

/**
 * The snapshots that a store yields, one after each change that `follow` reports. The generator makes a snapshot when
 * the consumer asks for the next value. Changes in between are merged into one snapshot. The generator ends with the
 * signal, or when the consumer stops. It then aborts `follow` and waits for its end.
 */
export async function* snapshots(
  look: () => Snapshot,
  follow: (changed: () => void, ended: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): AsyncGenerator<Snapshot> {
  const [leaving, changed] = [new AbortController(), makeNotification()]
  const ended = AbortSignal.any([signal, leaving.signal])
  const following = follow(changed.notify, ended)
  // `follow` rejects only because of a defect, not because of an outage. The abort ends the wait below.
  following.catch(() => leaving.abort())
  try {
    for (await changed.notified(ended); !ended.aborted; await changed.notified(ended)) yield look()
  } finally {
    leaving.abort()
    await following
  }
}

/** The requests of a store that are spans. What follows leases lasts as long as the agent, and is none. */
const REQUESTS: readonly (keyof SubnetStore)[] = ['config', 'claim', 'release', 'remembered', 'ready', 'unready']

/** The same store. Each request to it is a span, when anybody takes spans. */
export function tracedStore(store: SubnetStore): SubnetStore {
  if (!isTraced()) return store
  const attributes = { 'plumb.store': store.state().name }
  return new Proxy(store, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      if (!REQUESTS.includes(key as keyof SubnetStore)) return value.bind(target)
      return (...given: unknown[]) =>
        traced(`store ${String(key)}`, { kind: 'client', attributes }, async () => value.apply(target, given))
    },
  })
}
