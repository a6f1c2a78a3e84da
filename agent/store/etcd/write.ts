import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Cidr } from '../../../lib/text/ip.ts'
import type { Both, SubnetKey } from '../../lease/lease.ts'
import { StoreError } from '../store.ts'
import type { Connection } from './connection.ts'
import type { CompareSchema, RequestOpSchema } from './generated/etcd_pb.js'
import { encode, type Keys } from './keys.ts'
import type { Entry, View } from './view.ts'

/** What a claim writes: the lease of a key, new or over one that is there, the node's record, and nothing of the lease that goes for it. */
export interface Change {
  readonly node: string
  readonly identity?: string
  /** The revision at which the node's record was last written; 0 for none. */
  readonly record: bigint
  readonly key: SubnetKey
  readonly value: string
  readonly subnets: Both<Cidr>
  readonly over?: Entry
  readonly instead?: Entry
  /** The etcd lease that it lives by; 0 for a reservation. */
  readonly ttl: bigint
  /** Leftover claims of IPv6 subnets, and when they were written; one that is in the way is added. */
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

/** Writes all of it in one transaction, or nothing: false when anything that it rests on has changed meanwhile. It is asked again when no answer comes, and may then meet what it has written itself: the next look at the node finds that. */
export async function write({ etcd, keys, view }: To & { readonly view: View }, change: Change, signal: AbortSignal): Promise<boolean> {
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
  const success = [...(instead ? removal(keys, instead, v6) : []), put(keys.lease(key), value, ttl), put(keys.record(node), recorded, 0n), ...(v6 ? [put(keys.claim(v6), node, ttl)] : [])]
  const failure = isNew && v6 ? [{ request: { case: 'requestRange' as const, value: { key: keys.claim(v6) } } }] : []
  const { succeeded, responses, header } = await etcd.call(({ kv }, options) => kv.txn({ compare, success, failure }, options), signal)
  const revision = header?.revision ?? 0n
  if (succeeded) {
    const made = { createRevision: over?.created ?? revision, modRevision: revision, lease: ttl }
    view.wrote(
      [
        { ...made, key: keys.lease(key), value: encode(value) },
        { ...made, key: keys.record(node), value: encode(recorded) },
      ],
      instead ? [keys.lease(instead.key)] : [],
      revision,
    )
  }
  const [said] = responses
  const claimed = !succeeded && said?.response.case === 'responseRange' ? said.response.value.kvs[0] : undefined
  if (claimed && v6) claims.set(v6, claimed.modRevision)
  return succeeded
}

/** Removes a node's record, and the lease that it gives up, in one transaction; false when either has changed meanwhile. */
export async function drop({ etcd, keys }: To, { node, record, instead }: Pick<Change, 'node' | 'record' | 'instead'>, signal: AbortSignal): Promise<boolean> {
  const compare = [unchanged(keys.record(node), record), ...(instead ? [unchanged(keys.lease(instead.key), instead.written)] : [])]
  const success = [remove(keys.record(node)), ...(instead ? removal(keys, instead) : [])]
  return (await etcd.call(({ kv }, options) => kv.txn({ compare, success, failure: [] }, options), signal)).succeeded
}

/** Ends an etcd lease by which nothing lives any more; one by which somebody else's keys do is left alone. What fails is left to its time. */
export async function giveUp({ etcd }: To, ID: bigint, signal: AbortSignal): Promise<void> {
  if (ID === 0n) return
  try {
    const { keys } = await etcd.call(({ lease }, options) => lease.leaseTimeToLive({ ID, keys: true }, options), signal)
    if (keys.length === 0) await etcd.call(({ lease }, options) => lease.leaseRevoke({ ID }, options), signal)
  } catch (cause) {
    if (!(cause instanceof StoreError)) throw cause
  }
}

// Nobody has this IPv4 subnet, with whatever IPv6 one; but for the lease that goes.
function free(keys: Keys, key: SubnetKey, instead: Entry | undefined): Condition[] {
  const exact = keys.lease(key)
  const range = keys.sameV4(key) ?? { key: exact, rangeEnd: after(exact) }
  const hole = instead && keys.lease(instead.key)
  const parts =
    hole && within(hole, range)
      ? [
          { ...range, rangeEnd: hole },
          { ...range, key: after(hole) },
        ]
      : [range]
  return parts.filter((part) => Buffer.compare(part.key, part.rangeEnd) < 0).map((part) => ({ target: VERSION, targetUnion: { case: 'version', value: 0n }, ...part }))
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
