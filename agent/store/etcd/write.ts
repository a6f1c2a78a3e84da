import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Cidr } from '../../../lib/text/ip.ts'
import type { Both, SubnetKey } from '../../lease/lease.ts'
import { StoreError } from '../store.ts'
import type { Connection } from './connection.ts'
import type { CompareSchema, RequestOpSchema } from './generated/etcd_pb.js'
import { encode, type Keys } from './keys.ts'
import type { Entry, View } from './view.ts'

/**
 * The writes of a claim. They set a lease (new, or over an existing lease) and the node's record. They remove the lease
 * that the node gives up.
 */
export interface Change {
  readonly node: string
  readonly identity?: string
  /** The revision of the last write of the node's record. 0 when there is no record. */
  readonly record: bigint
  readonly key: SubnetKey
  readonly value: string
  readonly subnets: Both<Cidr>
  readonly over?: Entry
  readonly instead?: Entry
  /** The etcd lease that the keys live by. 0 for a reservation. */
  readonly ttl: bigint
  /**
   * Leftover claim keys of IPv6 subnets, with the revisions of their last writes. `write` adds a claim key that is in
   * the way.
   */
  readonly claims: Map<string, bigint>
}

interface To {
  readonly etcd: Connection
  readonly keys: Keys
}
type Condition = MessageInitShape<typeof CompareSchema>
type Operation = MessageInitShape<typeof RequestOpSchema>
// Compare.CompareTarget.
const [VERSION, MOD] = [0, 2]

/**
 * Writes the whole change in one transaction, or nothing. Returns false when a compared key has changed meanwhile.
 * Without an answer, the call is repeated and may then meet its own write. The next read of the node finds that write.
 */
export async function write(
  { etcd, keys, view }: To & { readonly view: View },
  change: Change,
  signal: AbortSignal,
): Promise<boolean> {
  const { node, identity, record, key, value, over, instead, ttl, subnets, claims } = change
  const v6 = subnets.v4 && subnets.v6
  const recorded = identity === undefined ? key : `${key} ${identity}`
  const isNew = over === undefined
  const compare = [
    unchanged(keys.record(node), record),
    ...(over ? [unchanged(keys.lease(over.key), over.written)] : free(keys, key, instead)),
    ...(instead ? [unchanged(keys.lease(instead.key), instead.written)] : []),
    ...(isNew && v6 ? [unchanged(keys.claim(v6), claims.get(v6) ?? 0n)] : []),
  ]
  const success = [
    ...(instead ? removal(keys, instead, v6) : []),
    put(keys.lease(key), value, ttl),
    put(keys.record(node), recorded, 0n),
    ...(v6 ? [put(keys.claim(v6), node, ttl)] : []),
  ]
  const failure = isNew && v6 ? [{ request: { case: 'requestRange' as const, value: { key: keys.claim(v6) } } }] : []
  const { succeeded, responses, header } = await etcd.call(
    ({ kv }, options) => kv.txn({ compare, success, failure }, options),
    signal,
  )
  const revision = header?.revision ?? 0n
  if (succeeded) {
    const made = { createRevision: over?.created ?? revision, modRevision: revision, lease: ttl }
    const puts = [
      { ...made, key: keys.lease(key), value: encode(value) },
      { ...made, key: keys.record(node), value: encode(recorded) },
    ]
    view.wrote(puts, instead ? [keys.lease(instead.key)] : [], revision)
  }
  const answer = responses[0]?.response
  const claimed = !succeeded && answer?.case === 'responseRange' ? answer.value.kvs[0] : undefined
  if (claimed && v6) claims.set(v6, claimed.modRevision)
  return succeeded
}

/**
 * Removes the record of a node and the lease that it gives up, in one transaction. Returns false when a compared key
 * has changed meanwhile.
 */
export async function drop(
  { etcd, keys }: To,
  { node, record, instead }: Pick<Change, 'node' | 'record' | 'instead'>,
  signal: AbortSignal,
): Promise<boolean> {
  const compare = [
    unchanged(keys.record(node), record),
    ...(instead ? [unchanged(keys.lease(instead.key), instead.written)] : []),
  ]
  const success = [remove(keys.record(node)), ...(instead ? removal(keys, instead) : [])]
  return (await etcd.call(({ kv }, options) => kv.txn({ compare, success, failure: [] }, options), signal)).succeeded
}

/**
 * Revokes an etcd lease without keys. Keeps an etcd lease that keys of another writer still use. After a failure, the
 * etcd lease ends by its lifetime.
 */
export async function giveUp({ etcd }: To, ID: bigint, signal: AbortSignal): Promise<void> {
  if (ID === 0n) return
  try {
    const { keys } = await etcd.call(({ lease }, options) => lease.leaseTimeToLive({ ID, keys: true }, options), signal)
    if (keys.length === 0) await etcd.call(({ lease }, options) => lease.leaseRevoke({ ID }, options), signal)
  } catch (cause) {
    if (!(cause instanceof StoreError)) throw cause
  }
}

// The conditions for a free IPv4 subnet: no lease has it, with any IPv6 subnet. The lease that the node gives up does
// not count.
function free(keys: Keys, key: SubnetKey, instead: Entry | undefined): Condition[] {
  const exact = keys.lease(key)
  const range = keys.sameV4(key) ?? { key: exact, rangeEnd: after(exact) }
  const hole = instead && keys.lease(instead.key)
  const around = (key: Uint8Array) => [
    { ...range, rangeEnd: key },
    { ...range, key: after(key) },
  ]
  const parts = hole && within(hole, range) ? around(hole) : [range]
  return parts
    .filter((part) => Buffer.compare(part.key, part.rangeEnd) < 0)
    .map((part) => ({ target: VERSION, targetUnion: { case: 'version', value: 0n }, ...part }))
}

function within(key: Uint8Array, range: { readonly key: Uint8Array; readonly rangeEnd: Uint8Array }): boolean {
  return Buffer.compare(range.key, key) <= 0 && Buffer.compare(key, range.rangeEnd) < 0
}

function after(key: Uint8Array): Uint8Array {
  return Uint8Array.of(...key, 0)
}

function removal(keys: Keys, { key, subnets }: Entry, kept?: Cidr): Operation[] {
  const { v4, v6 } = subnets
  return [remove(keys.lease(key)), ...(v4 && v6 && v6 !== kept ? [remove(keys.claim(v6))] : [])]
}

function unchanged(key: Uint8Array, written: bigint): Condition {
  return { target: MOD, key, targetUnion: { case: 'modRevision', value: written } }
}

function put(key: Uint8Array, value: string, lease: bigint): Operation {
  return { request: { case: 'requestPut', value: { key, value: encode(value), lease } } }
}

function remove(key: Uint8Array): Operation {
  return { request: { case: 'requestDeleteRange', value: { key } } }
}
