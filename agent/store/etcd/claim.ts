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

/** The connection, keys, view and lifetime that claims use. */
export interface Claiming {
  readonly etcd: Connection
  readonly keys: Keys
  readonly view: View
  readonly ttlSeconds: number
  /** An etcd lease that an earlier claim got and did not use. The next claim takes it. */
  spare?: Grant | undefined
}

interface Grant {
  readonly id: bigint
  /** End of the etcd lease, in milliseconds since 1970. */
  readonly expires: number
}

// Limit of attempts. Each conflict means that another node has got its subnet.
const TRIES = 100

/**
 * Makes or renews the lease of a node (see SubnetStore.claim). A node that knows its lease reads this lease only. Any
 * other node reads all leases once.
 */
export async function claim(to: Claiming, draft: Draft, conf: NetworkConf, signal: AbortSignal): Promise<Lease> {
  parseNode(draft.node)
  const granted = grants(to, signal)
  try {
    return await claimBy(granted, to, draft, conf, signal)
  } catch (cause) {
    // The write may have succeeded although no answer came. The keys then live by this etcd lease. The next claim
    // therefore takes this etcd lease.
    if (!/lease not found/.test((cause as Error).message)) granted.keep()
    throw cause
  }
}

async function claimBy(
  granted: ReturnType<typeof grants>,
  to: Claiming,
  draft: Draft,
  conf: NetworkConf,
  signal: AbortSignal,
): Promise<Lease> {
  const { etcd, view } = to
  // Existing claim keys of IPv6 subnets in dual-stack networks, learnt from failed transactions. When no lease has such
  // a subnet, the claim key is a leftover.
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
    const kept = held.entry && stays(draft, conf, held.entry) ? held.entry : undefined
    if (!kept && !view.isLive && !hasRead) await read()
    const chosen = kept ? { subnets: kept.subnets, over: kept } : attempt(to, draft, conf, held)
    if (chosen instanceof Error) {
      // The error is final only when the node was read after the full read. Another agent of this node may have claimed
      // in between.
      if (hadRead) {
        await granted.giveBack()
        throw chosen
      }
      // The watch may be a moment late, so the view may be old.
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
      const { node, ips, backend, data } = draft
      const lease = { node, subnets: chosen.subnets, ips, backend, data }
      return isReserved ? lease : { ...lease, expires: granted.expires() }
    }
    if (!kept) await read()
  }
  await granted.giveBack()
  throw new StoreError(`etcd: others were faster than node ${shown(draft.node)} ${TRIES} times`)
}

/**
 * Gives the node's lease back and removes its record. A reservation stays, because it does not belong to the node.
 * Throws StoreError.
 */
export async function release(
  to: Claiming,
  node: string,
  identity: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  parseNode(node)
  for (let tries = 0; tries < TRIES; tries++) {
    const { record, entry } = await look(to, node, signal)
    if (!record || isAnothers(record, identity)) return
    const isReserved = entry?.ttl === 0n
    const change = { node, record: record.written, ...(entry && !isReserved && { instead: entry }) }
    if (!(await drop(to, change, signal))) continue
    if (entry) await giveUp(to, entry.ttl, signal)
    return
  }
  throw new StoreError(`etcd: others were faster than the release of node ${shown(node)} ${TRIES} times`)
}

interface Held {
  readonly record?: NodeRecord
  /** The lease of the record, if the node still owns it. */
  readonly entry?: Entry
}

async function look({ etcd, keys }: Claiming, node: string, signal: AbortSignal): Promise<Held> {
  const get = async (key: Uint8Array): Promise<KeyValue | undefined> =>
    (await etcd.call(({ kv }, options) => kv.range({ key }, options), signal)).kvs[0]
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
    // The record was written by hand and is unreadable. It counts as empty.
    return undefined
  }
}

/**
 * Requests at most one etcd lease per claim, for all attempts. Gives back an unused etcd lease. After use, gives up the
 * etcd leases of the replaced keys.
 */
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
  const wanted = { TTL: BigInt(ttlSeconds) }
  const { ID, TTL } = await etcd.call(({ lease }, options) => lease.leaseGrant(wanted, options), signal)
  return { id: ID, expires: Date.now() + Number(TTL) * 1000 }
}

// Ignores a spare etcd lease with less than half of its lifetime left. Such a lease causes early renewals.
function spare(to: Claiming): Grant | undefined {
  const { spare: found, ttlSeconds } = to
  to.spare = undefined
  return found && found.expires - Date.now() > (ttlSeconds * 1000) / 2 ? found : undefined
}
