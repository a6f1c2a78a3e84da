import * as v from 'valibot'
import { draftOf, writeAtomic } from '../../lib/os/files.ts'
import { warn } from '../../lib/os/log.ts'
import { readText } from '../../lib/os/reading.ts'
import { field, read } from '../../lib/text/shape.ts'
import { decodeKey, decodeLease, encodeKey, encodeValue, type Lease } from '../lease/lease.ts'
import { formatNetworkConf, type NetworkConf, parseNetworkConf } from '../lease/network-configuration.ts'

/** The last known state of the network. */
export interface LastKnown {
  /** Time of writing, in milliseconds since 1970. */
  readonly at: number
  readonly conf: NetworkConf
  /** This node's lease, with its end. */
  readonly lease: Lease
  readonly leases: readonly Lease[]
}
/** The file, and the node and the store that it belongs to. Data of another node or of another network is useless. */
export interface CheckpointFile {
  readonly path: string
  readonly node: string
  /** The identity of the store, as text. */
  readonly store: string
}
/** Keeps the known state on disk, for a start without the store. */
export interface Checkpoint {
  /** Takes the current state. Writes it a moment later if its content has changed. */
  save(known: Omit<LastKnown, 'at'>): void
  /** Writes pending state at once. */
  flush(): void
}

/**
 * Wait before a write, and the extra wait for each lease. Ten thousand are written at most once a minute. Milliseconds.
 */
const [PAUSE_MS, PER_LEASE_MS] = [5000, 6]
// A clock that was set back by less than this still counts as right. Milliseconds.
const SLACK_MS = 60_000

/**
 * Makes a checkpoint without any state. `failing` gets the reason when a write fails, and undefined after a success.
 */
export function openCheckpoint(place: CheckpointFile, failing: (why: string | undefined) => void): Checkpoint {
  let taken: Omit<LastKnown, 'at'> | undefined
  let written: bigint | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const flush = () => {
    clearTimeout(timer)
    timer = undefined
    if (!taken) return
    const known = taken
    const text = textOf(place, known)
    taken = undefined
    const digest = Bun.hash.xxHash64(text)
    if (digest === written) return
    try {
      writeAtomic(place.path, `{"at":${Date.now()},${text.slice(1)}`, { mode: 0o600, by: draftOf(place.path) })
      written = digest
      failing(undefined)
    } catch (cause) {
      taken = known
      failing(`Cannot write ${place.path}: ${(cause as Error).message}`)
    }
  }
  const later = () => {
    flush()
    if (taken) start(taken.leases.length)
  }
  const start = (count: number) => {
    timer ??= setTimeout(later, PAUSE_MS + count * PER_LEASE_MS)
    timer.unref()
  }
  return {
    save(known) {
      if (known.lease === taken?.lease && known.leases === taken.leases) return
      taken = known
      start(known.leases.length)
    },
    flush,
  }
}

/** Reads the checkpoint that was written for this place. Undefined when there is no file or its content is unusable. */
export function readCheckpoint({ path, node, store }: CheckpointFile): LastKnown | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { at, conf, lease, leases, ...whose } = read(shape, JSON.parse(text)).value
    if (whose.node !== node || whose.store !== store) return undefined
    const own = leaseOf([lease.key, lease.value, node])
    return {
      at,
      conf: parseNetworkConf(JSON.stringify(conf)),
      lease: { ...own, ...(lease.expires !== undefined && { expires: lease.expires }) },
      leases: leases.map(leaseOf),
    }
  } catch (cause) {
    warn(`agent: Cannot use ${path}, going on without: ${(cause as Error).message}`)
    return undefined
  }
}

/**
 * Why another node may own the last known subnet by now, as a sentence. Pods must then get no addresses from it.
 * Undefined when the subnet certainly belongs to this node.
 */
export function whyUncertain({ at, lease: { subnets, expires } }: Pick<LastKnown, 'at' | 'lease'>): string | undefined {
  const now = Date.now()
  const whose = `this node's lease of ${[subnets.v4, subnets.v6].filter(Boolean).join(' ')}`
  if (expires === undefined) return undefined
  if (now >= expires) return `${whose} ended at ${new Date(expires).toISOString()}: another node may have it by now`
  if (now >= at - SLACK_MS) return undefined
  const clock = `the clock shows ${new Date(now).toISOString()}, before the time of its last renewal`
  return `whether ${whose} has ended cannot be told: ${clock}`
}

function textOf({ node, store }: CheckpointFile, { conf, lease, leases }: Omit<LastKnown, 'at'>): string {
  const { expires } = lease
  const own = { key: encodeKey(lease.subnets), value: encodeValue(lease), ...(expires !== undefined && { expires }) }
  const rows = leases.map((one) => {
    const row = [encodeKey(one.subnets), encodeValue(one)]
    return one.node === undefined ? row : [...row, one.node]
  })
  return JSON.stringify({ node, store, conf: JSON.parse(formatNetworkConf(conf)), lease: own, leases: rows })
}

function leaseOf([key = '', value = '', node]: readonly string[]): Lease {
  return { ...decodeLease(decodeKey(key), value), ...(node !== undefined && { node }) }
}

const time = field.int(0, Number.MAX_SAFE_INTEGER)
const shape = v.object({
  at: time,
  node: field.text,
  store: field.text,
  conf: v.looseObject({}),
  lease: v.object({ key: field.text, value: field.text, expires: v.exactOptional(time) }),
  leases: v.array(v.array(field.text)),
})
