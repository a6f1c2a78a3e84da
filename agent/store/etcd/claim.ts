import { shown } from '../../../lib/text/errors.ts'
import { decodeKey, encodeKey, encodeValue, type Lease, parseNode } from '../../lease/lease.ts'
import type { NetworkConf } from '../../lease/network-configuration.ts'
import { type Chosen, choose, isAnothers, refuseNamesake, stays } from '../choose.ts'
import { type Draft, OutOfSubnetsError, StoreError, SubnetTakenError } from '../store.ts'
import type { Connection } from './connection.ts'
import type { KeyValue } from './generated/etcd_pb.js'
import type { Keys } from './keys.ts'
import { type Entry, entryOf, isOwn, type NodeRecord, recordOf, type View } from './view.ts'
import { type Change, drop, giveUp, write } from './write.ts'

/** Where and how leases are claimed. */
export interface Claiming {
  readonly etcd: Connection
  readonly keys: Keys
  readonly view: View
  readonly ttlSeconds: number
  /** An etcd lease that a claim got and did not come to use: the next one takes it. */
  spare?: Grant | undefined
}

interface Grant {
  readonly id: bigint
  /** In milliseconds since 1970. */
  readonly expires: number
}

// Each conflict means that another node has got its subnet.
const TRIES = 100

/** The lease of a node, made or renewed; see SubnetStore.claim. A node that knows its lease reads it alone, any other reads all once. */
export async function claim(to: Claiming, draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease> {
  parseNode(draft.node)
  const granted = grants(to, signal)
  try {
    return await claimBy(granted, to, draft, conf, signal)
  } catch (cause) {
    // What was asked for may have been written though no answer came: then this is the lease that it lives by.
    if (!/lease not found/.test((cause as Error).message)) granted.keep()
    throw cause
  }
}

async function claimBy(granted: ReturnType<typeof grants>, to: Claiming, draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease> {
  const { etcd, view } = to
  // IPv6 subnets of dual-stack leases that are claimed, as far as somebody said so: when no lease has such a one, its claim is a leftover.
  const claims = new Map<string, bigint>()
  let hasRead = false
  const read = async () => {
    await view.read(etcd, signal)
    hasRead = true
  }
  for (let tries = 0; tries < TRIES; tries++) {
    const hadRead = hasRead
    const held = await look(to, draft.node, signal)
    refuseNamesake(draft, held.record, held.entry && { subnets: held.entry.subnets, ips: held.entry.lease?.ips })
    const isKept = held.entry && stays(draft, conf, held.entry)
    if (!isKept && !view.isLive && !hasRead) await read()
    const chosen = isKept && held.entry ? { subnets: held.entry.subnets, over: held.entry } : attempt(to, draft, conf, held)
    if (chosen instanceof Error) {
      // Final only when the node was looked at after all was read: another agent of the node may have claimed in between.
      if (hadRead) {
        await granted.giveBack()
        throw chosen
      }
      // A watch may be a moment behind.
      if (!hasRead) await read()
      continue
    }
    const isReserved = (chosen.over ?? chosen.instead)?.ttl === 0n
    const change: Change = {
      node: draft.node,
      ...(draft.identity !== undefined && { identity: draft.identity }),
      record: held.record?.written ?? 0n,
      key: encodeKey(chosen.subnets),
      value: encodeValue(draft),
      ...chosen,
      ttl: isReserved ? 0n : await granted.id(),
      claims,
    }
    if (await write(to, change, signal)) {
      await granted.use(change.ttl, chosen)
      return { node: draft.node, subnets: chosen.subnets, ips: draft.ips, backend: draft.backend, data: draft.data, ...(!isReserved && { expires: granted.expires() }) }
    }
    if (!isKept) await read()
  }
  await granted.giveBack()
  throw new StoreError(`etcd: others were faster than node ${shown(draft.node)} ${TRIES} times`)
}

/** Gives a node's lease back, and forgets the node. A reservation stays: it is not the node's to remove. */
export async function release(to: Claiming, node: string, identity: string | undefined, signal: AbortSignal): Promise<void> {
  parseNode(node)
  for (let tries = 0; tries < TRIES; tries++) {
    const { record, entry } = await look(to, node, signal)
    if (!record || isAnothers(record, identity)) return
    if (await drop(to, { node, record: record.written, ...(entry && entry.ttl !== 0n && { instead: entry }) }, signal)) {
      if (entry) await giveUp(to, entry.ttl, signal)
      return
    }
  }
}

interface Held {
  readonly record?: NodeRecord
  /** Its lease, when that is still its own. */
  readonly entry?: Entry
}

async function look({ etcd, keys }: Claiming, node: string, signal: AbortSignal): Promise<Held> {
  const get = async (key: Uint8Array): Promise<KeyValue | undefined> => (await etcd.call(({ kv }, options) => kv.range({ key }, options), signal)).kvs[0]
  const kv = await get(keys.record(node))
  if (!kv) return {}
  const record = recordOf(kv)
  const subnets = earlier(record)
  const found = subnets && (await get(keys.lease(encodeKey(subnets))))
  const entry = found && entryOf(record.key, found)
  return { record, ...(isOwn(record, entry) && { entry }) }
}

function attempt({ view }: Claiming, draft: Draft, conf: NetworkConf, held: Held): Chosen<Entry> | Error {
  const owners = view.owners()
  const holding = (entry: Entry) => ({ ...entry, ips: entry.lease?.ips, node: owners.get(entry.key) })
  const own = held.entry && holding(held.entry)
  const others = view.entries().filter(({ key }) => key !== own?.key)
  try {
    return choose(draft, conf, others.map(holding), own, held.record && earlier(held.record))
  } catch (cause) {
    if (cause instanceof OutOfSubnetsError || cause instanceof SubnetTakenError) return cause
    throw cause
  }
}

function earlier({ key }: NodeRecord): ReturnType<typeof decodeKey> | undefined {
  try {
    return decodeKey(key)
  } catch {
    // Somebody wrote a record by hand: it says nothing.
    return undefined
  }
}

/** At most one etcd lease per claim, however often it is tried: given back when it was not used, and in use it sets the one before free. */
function grants(to: Claiming, signal: AbortSignal) {
  let [made, used]: [Grant | undefined, boolean] = [undefined, false]
  return {
    async id(): Promise<bigint> {
      made ??= spare(to) ?? (await grant(to, signal))
      return made.id
    },
    expires: () => made?.expires ?? 0,
    async use(ttl: bigint, { over, instead }: Chosen<Entry>): Promise<void> {
      used = ttl === made?.id
      for (const old of [over, instead]) if (old && old.ttl !== ttl) await giveUp(to, old.ttl, signal)
    },
    async giveBack(): Promise<void> {
      const unused = made
      made = undefined
      if (unused && !used) await giveUp(to, unused.id, signal)
    },
    keep(): void {
      if (made && !used) to.spare = made
    },
  }
}

async function grant({ etcd, ttlSeconds }: Claiming, signal: AbortSignal): Promise<Grant> {
  const { ID, TTL } = await etcd.call(({ lease }, options) => lease.leaseGrant({ TTL: BigInt(ttlSeconds) }, options), signal)
  return { id: ID, expires: Date.now() + Number(TTL) * 1000 }
}

// One that is half over would be renewed too early all the time.
function spare(to: Claiming): Grant | undefined {
  const { spare: found, ttlSeconds } = to
  to.spare = undefined
  return found && found.expires - Date.now() > (ttlSeconds * 1000) / 2 ? found : undefined
}
