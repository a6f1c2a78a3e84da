import * as v from 'valibot'
import { draftOf, writeAtomic } from '../../lib/os/files.ts'
import { log } from '../../lib/os/log.ts'
import { readText } from '../../lib/os/reading.ts'
import { field, read } from '../../lib/text/shape.ts'
import { decodeKey, decodeLease, encodeKey, encodeValue, type Lease } from '../lease/lease.ts'
import { formatNetworkConf, type NetworkConf, parseNetworkConf } from '../lease/network-configuration.ts'

/** What was known of the network last. */
export interface Known {
  /** When it was written, in milliseconds since 1970. */
  readonly at: number
  readonly conf: NetworkConf
  /** This node's own, with its end. */
  readonly lease: Lease
  readonly leases: readonly Lease[]
}
/** Whose it is: what another node, or another network, knew is of no use. */
export interface Place {
  readonly path: string
  readonly node: string
  /** Which store, as text. */
  readonly store: string
}
/** Keeps on disk what is known, for a start without the store. */
export interface Keeper {
  /** What is known by now; written a moment later, when it says something else. */
  take(known: Omit<Known, 'at'>): void
  /** Writes at once what was taken and is not written yet. */
  flush(): void
}

/** Between two writes, and for each lease beside that: ten thousand are written once a minute at most. Milliseconds. */
const [PAUSE_MS, PER_LEASE_MS] = [5000, 6]
// A clock that was set back a little still tells the time.
const SLACK_MS = 60_000

/** Makes a keeper that has nothing yet; `failing` is told why it cannot write, and undefined when it can again. */
export function keepKnown(place: Place, failing: (why: string | undefined) => void): Keeper {
  let taken: Omit<Known, 'at'> | undefined
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
      writeAtomic(place.path, `{"at":${Date.now()},${text.slice(1)}`, { mode: 0o644, by: draftOf(place.path) })
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
    take(known) {
      if (known.lease === taken?.lease && known.leases === taken.leases) return
      taken = known
      start(known.leases.length)
    },
    flush,
  }
}

/** What a keeper wrote at this place; undefined when there is nothing, or nothing that can be used. */
export function recall({ path, node, store }: Place): Known | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { at, conf, lease, leases, ...whose } = read(shape, JSON.parse(text)).value
    if (whose.node !== node || whose.store !== store) return undefined
    const own = leaseOf([lease.key, lease.value, node])
    return { at, conf: parseNetworkConf(JSON.stringify(conf)), lease: { ...own, ...(lease.expires !== undefined && { expires: lease.expires }) }, leases: leases.map(leaseOf) }
  } catch (cause) {
    log(`agent: Cannot use ${path}, going on without: ${(cause as Error).message}`)
    return undefined
  }
}

/** Why the subnet that a node knows of may be another's by now, as a sentence: pods must not be given addresses of it. Undefined when it is the node's for certain. */
export function doubtOf({ at, lease: { subnets, expires } }: Pick<Known, 'at' | 'lease'>): string | undefined {
  const now = Date.now()
  const whose = `this node's lease of ${[subnets.v4, subnets.v6].filter(Boolean).join(' ')}`
  if (expires === undefined) return undefined
  if (now >= expires) return `${whose} ended at ${new Date(expires).toISOString()}: another node may have it by now`
  return now < at - SLACK_MS ? `whether ${whose} has ended cannot be told: the clock shows ${new Date(now).toISOString()}, before the time of its last renewal` : undefined
}

function textOf({ node, store }: Place, { conf, lease, leases }: Omit<Known, 'at'>): string {
  const { expires } = lease
  const own = { key: encodeKey(lease.subnets), value: encodeValue(lease), ...(expires !== undefined && { expires }) }
  const rows = leases.map((one) => [encodeKey(one.subnets), encodeValue(one), ...(one.node === undefined ? [] : [one.node])])
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
