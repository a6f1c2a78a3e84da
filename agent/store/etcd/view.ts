import { Code } from '@connectrpc/connect'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { type Both, decodeKey, decodeLease, type Lease, type SubnetKey } from '../../lease/lease.ts'
import { isNodeName } from '../../lease/node-name.ts'
import { giveBack } from '../../node/garbage.ts'
import { type Snapshot, StoreError } from '../store.ts'
import { type Connection, refusal } from './connection.ts'
import type { Event, KeyValue } from './generated/etcd_pb.js'
import { decode, type Keys } from './keys.ts'

// Keys per page. An answer of about 400 kB is small next to the agent, and large next to the cost of a round trip.
const PAGE = 2000n

/** One lease as etcd has it. */
export interface Entry {
  readonly key: SubnetKey
  readonly subnets: Both<Cidr>
  /** The decoded value. `why` is the reason when the value is unreadable. The subnets count as taken even then. */
  readonly lease: Omit<Lease, 'node' | 'expires'> | undefined
  readonly why?: string
  /** The revisions of the creation and of the last write of the key. */
  readonly created: bigint
  readonly written: bigint
  /** The etcd lease that the key lives by. 0 for a reservation. */
  readonly ttl: bigint
}

/** A key as etcd has it. */
export type StoredValue = Pick<KeyValue, 'key' | 'value' | 'createRevision' | 'modRevision' | 'lease'>

/** The record of a node: the key of its lease, and the revision of the record's last write. */
export interface NodeRecord {
  readonly key: string
  readonly identity?: string
  readonly written: bigint
}

/** The known leases of a network. The view reads them once, and a watch then keeps them up to date. */
export class View {
  readonly #keys: Keys
  #entries = new Map<string, Entry>()
  /** Keys below the prefix of the leases that name no subnets, with the reasons. */
  #strangers = new Map<string, string>()
  #records = new Map<string, NodeRecord>()
  #reading: Promise<void> | undefined
  readonly #listeners = new Set<() => void>()
  readonly #leases = new WeakMap<Omit<Lease, 'node'>, Lease>()
  /** The view has all changes up to this revision. 0 before the first read. */
  revision = 0n
  /** Whether a watch keeps the view up to date. */
  isLive = false

  constructor(keys: Keys) {
    this.#keys = keys
  }

  /** Calls `changed` after each change until the signal. Calls it at once when the view already has data. */
  subscribe(changed: () => void, signal: AbortSignal): void {
    this.#listeners.add(changed)
    signal.addEventListener('abort', () => this.#listeners.delete(changed), { once: true })
    if (this.revision !== 0n) changed()
  }

  /** Reads all keys again, page by page, as of one revision. Concurrent callers share one read. */
  async read(etcd: Connection, signal: AbortSignal): Promise<void> {
    this.#reading ??= this.#read(etcd, signal).finally(() => {
      this.#reading = undefined
    })
    await this.#reading
  }

  /** Applies the events of a watch, up to and including `revision`. Skips events that the view already has. */
  apply(events: readonly Event[], revision: bigint): void {
    const newer = events.filter(({ kv }) => kv && kv.modRevision > this.revision)
    // Event_EventType: 0 is PUT, 1 is DELETE.
    let isOther = false
    for (const { type, kv } of newer) if (kv && (type === 0 ? this.#note(kv) : this.#forget(kv.key))) isOther = true
    if (revision > this.revision) this.revision = revision
    if (isOther) this.#changed()
  }

  /**
   * Applies a write of this store at `revision`, before the watch reports it. So the node does not miss its own lease.
   */
  wrote(puts: readonly StoredValue[], removed: readonly Uint8Array[], revision: bigint): void {
    if (this.revision === 0n || revision <= this.revision) return
    for (const key of removed) this.#forget(key)
    for (const kv of puts) this.#note(kv)
    this.#changed()
  }

  /** Marks the data as unusable for a watch. The next user reads all keys. Until then, snapshots show the old data. */
  relist(): void {
    this.isLive = false
    this.revision = 0n
  }

  entry(key: string): Entry | undefined {
    return this.#entries.get(key)
  }

  entries(): readonly Entry[] {
    return [...this.#entries.values()]
  }

  /** The node of each lease, by the key of the lease. */
  owners(): ReadonlyMap<string, string> {
    const owners = new Map<string, string>()
    for (const [node, record] of this.#records)
      if (isOwn(record, this.#entries.get(record.key))) owners.set(record.key, node)
    return owners
  }

  snapshot(): Snapshot {
    const owners = this.owners()
    const leases: Lease[] = []
    const unreadable: { readonly key: string; readonly why: string }[] = []
    const byAge = [...this.#entries.values()].sort((a, b) => Number(a.created - b.created))
    for (const { key, lease, why } of byAge) {
      if (lease) leases.push(this.#named(lease, owners.get(key)))
      if (why !== undefined) unreadable.push({ key, why })
    }
    for (const [key, why] of this.#strangers) unreadable.push({ key, why })
    return { leases, unreadable }
  }

  // Returns the same object until something changes. A consumer can then skip a lease that it has seen.
  #named(lease: Omit<Lease, 'node'>, node: string | undefined): Lease {
    if (node === undefined) return lease
    const before = this.#leases.get(lease)
    if (before?.node === node) return before
    const named = { ...lease, node }
    this.#leases.set(lease, named)
    return named
  }

  async #read(etcd: Connection, signal: AbortSignal): Promise<void> {
    const fresh = new View(this.#keys)
    let { key } = this.#keys.all
    for (let isMore = true; isMore; ) {
      try {
        const { kvs, more, header } = await etcd.call(
          ({ kv }, options) => kv.range({ ...this.#keys.all, key, limit: PAGE, revision: fresh.revision }, options),
          signal,
        )
        for (const kv of kvs) fresh.#note(kv)
        fresh.revision ||= header?.revision ?? 0n
        const last = kvs.at(-1)?.key
        // Without a key there is no next page to ask for, so the rest is unknown.
        if (more && !last) throw new StoreError('etcd: it answered with a page without keys, and said that more follow')
        isMore = more
        if (last) key = Uint8Array.of(...last, 0)
      } catch (cause) {
        // etcd was compacted during the read. The pages read so far are too old.
        if (refusal(cause) !== Code.OutOfRange) throw cause
        return this.#read(etcd, signal)
      }
    }
    // A live watch continued during the read and has newer data.
    if (this.isLive && fresh.revision < this.revision) return
    this.#entries = fresh.#entries
    this.#strangers = fresh.#strangers
    this.#records = fresh.#records
    this.revision = fresh.revision
    giveBack(this.#entries.size)
    this.#changed()
  }

  #changed(): void {
    for (const changed of this.#listeners) changed()
  }

  // True when the content has changed. A lease that was only renewed has the same content and stays the same object.
  #note(kv: StoredValue): boolean {
    const what = this.#keys.read(kv.key)
    if (!what || ('node' in what && !isNodeName(what.node))) return false
    if (!('node' in what)) return this.#put(what.lease, kv)
    const [before, now] = [this.#records.get(what.node), recordOf(kv)]
    this.#records.set(what.node, now)
    const entry = this.#entries.get(now.key)
    return before?.key !== now.key || isOwn(before, entry) !== isOwn(now, entry)
  }

  #put(key: string, kv: StoredValue): boolean {
    try {
      const [before, now] = [this.#entries.get(key), entryOf(key, kv)]
      const isSame =
        before?.created === now.created && before.why === now.why && Bun.deepEquals(before.lease, now.lease)
      this.#entries.set(key, isSame ? { ...now, lease: before.lease } : now)
      return !isSame
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      const before = this.#strangers.get(key)
      this.#strangers.set(key, cause.message)
      return before !== cause.message
    }
  }

  #forget(key: Uint8Array): boolean {
    const what = this.#keys.read(key)
    if (!what) return false
    if ('node' in what) return this.#records.delete(what.node)
    const [wasEntry, wasStranger] = [this.#entries.delete(what.lease), this.#strangers.delete(what.lease)]
    return wasEntry || wasStranger
  }
}

/** Decodes a lease of etcd. Throws ValueError for a key that names no subnets. */
export function entryOf(key: string, { value, createRevision, modRevision, lease }: StoredValue): Entry {
  const subnets = decodeKey(key)
  return {
    key: key as SubnetKey,
    subnets,
    ...readable(subnets, decode(value)),
    created: createRevision,
    written: modRevision,
    ttl: lease,
  }
}

/** Decodes the record of a node: the key of its lease, then a blank and the identity. */
export function recordOf({ value, modRevision }: Pick<StoredValue, 'value' | 'modRevision'>): NodeRecord {
  const [key = '', identity] = decode(value).split(' ')
  return { key, ...(identity !== undefined && { identity }), written: modRevision }
}

/**
 * Whether the lease is still the lease that the record was written for. If the lease has ended and exists again since,
 * another node may own it.
 */
export function isOwn(record: NodeRecord | undefined, entry: Entry | undefined): entry is Entry {
  return record !== undefined && entry !== undefined && entry.key === record.key && entry.created <= record.written
}

function readable(subnets: Both<Cidr>, text: string): Pick<Entry, 'lease' | 'why'> {
  try {
    return { lease: decodeLease(subnets, text) }
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    return { lease: undefined, why: cause.message }
  }
}
