import { type Echoes, openEchoes } from '../../lib/os/echo.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Both, SubnetKey } from '../lease/lease.ts'
import { type Durations, noDurations, withDuration } from '../scheduler/durations.ts'
import type { Path } from './path-mtu.ts'

/**
 * The result of the probes to a peer: whether it answers, how many recent probes were lost, and the last round trip in
 * milliseconds.
 */
export interface Probe {
  /**
   * `unknown` until the peer has answered once or missed three probes in a row. `narrow`: it answers, but not packets
   * of full size.
   */
  readonly state: 'unknown' | 'answers' | 'narrow' | 'silent'
  /** The number of counted probes, at most ten. */
  readonly sent: number
  readonly lost: number
  readonly ms?: number
  /** The largest packet that the peer got, in bytes, at most of full size. Absent while it is not known. */
  readonly mtu?: number
}
/**
 * The address to probe, the address of this node to probe from, and the size of the largest packets of pods in bytes.
 */
export interface Aim {
  readonly key: SubnetKey
  readonly from: Both<Ip>
  readonly to: Both<Ip>
  readonly mtu: number
}
/** The upper bounds of the histogram of answers, in seconds. */
export const PROBE_BUCKETS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2,
]
/** Probes peers over the overlay, one after the other. Each peer is probed about once in an interval. */
export interface Probes {
  /** Sets the peers to probe from now on. Results of peers that were probed before stay. */
  aim(at: readonly Aim[]): void
  /** The results for a peer. Undefined for a peer that is not probed. */
  of(key: SubnetKey): Probe | undefined
  /** What is known of the size of packets to a peer, by family. Empty for a peer that is not probed. */
  paths(key: SubnetKey): Both<Path>
  /** The answers of all peers to small probes since the start. */
  times(): Durations
  /**
   * Sends the due probes and reads the answers. Gives the peers that became silent or narrow, and those that recovered.
   */
  tick(now: number): {
    readonly silent: readonly SubnetKey[]
    readonly narrow: readonly SubnetKey[]
    readonly back: readonly SubnetKey[]
    /** The number of probes that were sent. */
    readonly sent: number
  }
  close(): void
}

/** A later answer counts as lost. */
const WAIT_MS = 2000
/** FEW lost probes in a row are not an accident. After the first loss, the next probes follow soon (AGAIN_MS). */
const [FEW, AGAIN_MS] = [3, 1000]
/** The number of results that are kept per target. */
const WINDOW = 10
/** The most probes in one tick. With very many peers, each peer is probed less often. */
const MOST = 100
const ALL = (1 << WINDOW) - 1
/** A small probe has at most as many bytes: 40 of IPv6 and 32 of its own. */
const SMALL_BYTES = 72
/** How often the largest packet that a narrow peer gets is looked for again. Three packets find that it is the same. */
const SEARCH_MS = 120_000

// One family of one peer, by small packets or by packets of full size. `results` has one bit per recent probe, the
// newest in the lowest bit. 1 means lost.
interface Target {
  readonly id: number
  readonly key: SubnetKey
  readonly family: 'v4' | 'v6'
  readonly isFull: boolean
  to: Ip
  bytes: number
  dueAt: number
  sentAt: number | undefined
  serial: number
  sent: number
  results: number
  state: Exclude<Probe['state'], 'narrow'>
  /** When the last probe that was answered, and the last that was lost, was sent. */
  answeredFrom: number
  lostFrom: number
  /** Packets of full size are lost, and small ones that were sent at the same moments arrive. Only of full size. */
  isNarrow: boolean
  ms: number | undefined
  /** The largest packet that arrived, in bytes. Only of packets of full size. */
  largest: number | undefined
}
// The search for the largest packet of a target whose packets of full size are lost. Packets of `low` bytes arrive, those
// of `high` are lost.
interface Search {
  readonly target: Target
  low: number
  high: number
  dueAt: number
  sentAt: number | undefined
  serial: number
}

/**
 * Makes the probes. `open` may throw, and then probing from that address is impossible. `failing` is called with the
 * reason then, and with undefined when it works.
 */
export function makeProbes(
  intervalMs: number,
  failing: (why: string | undefined) => void,
  open: (from: Ip) => Echoes = openEchoes,
): Probes {
  const targets = new Map<number, Target>()
  const byKey = new Map<SubnetKey, number[]>()
  const searches = new Map<number, Search>()
  const sockets: { v4?: Socket; v6?: Socket } = {}
  let [froms, serial]: [Both<Ip>, number] = [{}, 0]
  let times = noDurations(PROBE_BUCKETS)

  function socketOf(family: 'v4' | 'v6', now: number): Echoes | undefined {
    const [from, had] = [froms[family], sockets[family]]
    if (had && had.from === from && (had.echoes || now < had.againAt)) return had.echoes
    had?.echoes?.close()
    delete sockets[family]
    if (from === undefined) return undefined
    try {
      sockets[family] = { from, echoes: open(from), againAt: 0 }
      failing(undefined)
    } catch (cause) {
      sockets[family] = { from, echoes: undefined, againAt: now + WAIT_MS }
      failing((cause as Error).message)
    }
    // The first probe waits. The kernel needs a moment until it notes the arrival times of packets.
    return undefined
  }
  function settle(target: Target, lost: boolean, now: number): void {
    target[lost ? 'lostFrom' : 'answeredFrom'] = target.sentAt ?? now
    target.sentAt = undefined
    target.sent = Math.min(target.sent + 1, WINDOW)
    target.results = ((target.results << 1) | Number(lost)) & ALL
    const isSilent = target.sent >= FEW && (target.results & 7) === 7
    if (!lost) target.state = 'answers'
    else if (isSilent) target.state = 'silent'
    target.dueAt = now + (lost && !isSilent ? AGAIN_MS : intervalMs * (0.85 + Math.random() * 0.3))
    const other = twinOf(target)
    if (target.isFull && !lost) {
      target.isNarrow = false
      found(target, target.bytes)
    } else if (target.isNarrow) {
      search(target, now)
    } else if (!target.isFull && isSilent && other) {
      other.isNarrow = false
      found(other, undefined)
    }
  }
  // Whether large packets alone are lost can only be told from a small one that was sent at the same moment. An older
  // answer is from before the loss, and a newer one may be from after it.
  function judge(target: Target, now: number): void {
    if (!target.isFull || target.state !== 'silent' || target.isNarrow) return
    const small = twinOf(target)
    if (small?.state !== 'answers') return
    if (small.answeredFrom === target.lostFrom) {
      target.isNarrow = true
      search(target, now)
    } else if (target.sentAt === undefined) target.dueAt = Math.min(target.dueAt, now + AGAIN_MS)
  }
  function search(target: Target, now: number): void {
    if (searches.values().some((one) => one.target === target)) return
    searches.set(serial++, { target, dueAt: now, ...UNSEARCHED, high: target.bytes })
  }
  // The target of the other size of the same family.
  function twinOf({ key, family, isFull }: Target): Target | undefined {
    const all = byKey.get(key)?.flatMap((id) => targets.get(id) ?? [])
    return all?.find((one) => one.family === family && one.isFull !== isFull)
  }
  function found(target: Target, bytes: number | undefined): void {
    target.largest = bytes
    for (const [id, one] of searches) if (one.target === target) searches.delete(id)
  }
  function narrowDown(one: Search, lost: boolean, now: number): void {
    const [bytes, isLast] = [sizeOf(one), one.high - one.low <= 1]
    Object.assign(one, { sentAt: undefined, dueAt: now }, lost ? { high: bytes } : { low: bytes })
    if (!isLast) return
    // A size that was lost by accident arrives now. The search goes on above it.
    if (!lost) one.high = one.target.bytes
    else if (one.low < one.high) one.target.largest = one.low
    if (lost) Object.assign(one, UNSEARCHED, { high: one.target.bytes, dueAt: now + SEARCH_MS })
  }
  function seek(id: number, one: Search, now: number): boolean {
    const small = twinOf(one.target)
    if (one.sentAt !== undefined && now - one.sentAt > WAIT_MS) {
      // A size that was lost together with a small packet says nothing.
      if (small?.answeredFrom === one.sentAt) narrowDown(one, true, now)
      else Object.assign(one, { sentAt: undefined, dueAt: now + AGAIN_MS })
    }
    const isDue = one.sentAt === undefined && one.dueAt <= now && small && small.sentAt === undefined
    const socket = isDue ? socketOf(one.target.family, now) : undefined
    if (!socket || !small) return false
    send(small, now)
    one.serial++
    one.sentAt = now
    socket.send(one.target.to, id, one.serial, sizeOf(one))
    return true
  }
  function count(ms: number): void {
    times = withDuration(times, ms / 1000, PROBE_BUCKETS)
  }
  function send(target: Target, now: number): boolean {
    const socket = socketOf(target.family, now)
    if (!socket) return false
    target.serial++
    target.sentAt = now
    socket.send(target.to, target.id, target.serial, target.bytes)
    return true
  }
  return {
    aim(at) {
      froms = at[0]?.from ?? {}
      const [before, now] = [new Map(byKey), performance.now()]
      byKey.clear()
      const kept = new Set<number>()
      for (const { key, to, mtu } of at)
        for (const [family, isFull] of KINDS) {
          const ip = to[family]
          if (ip === undefined) continue
          const isSame = (one: Target | undefined) => one?.family === family && one.isFull === isFull
          const known = before.get(key)?.find((id) => isSame(targets.get(id)))
          const id = known ?? serial++
          const target = known === undefined ? undefined : targets.get(known)
          const bytes = isFull ? mtu : 0
          // Spreads the first probes. Otherwise a thousand nodes that start together probe one peer in one second.
          const dueAt = now + Math.random() * Math.min(intervalMs, at.length * 20)
          if (target && target.bytes !== bytes) found(target, undefined)
          if (target) Object.assign(target, { to: ip, bytes })
          else targets.set(id, { id, key, family, isFull, to: ip, bytes, dueAt, ...UNTRIED })
          kept.add(id)
          byKey.set(key, [...(byKey.get(key) ?? []), id])
        }
      for (const [id, target] of [...targets]) {
        if (kept.has(id)) continue
        found(target, undefined)
        targets.delete(id)
      }
    },
    of(key) {
      const all = byKey.get(key)?.flatMap((id) => targets.get(id) ?? [])
      if (!all?.length) return undefined
      const small = all.filter(({ isFull }) => !isFull)
      const isWorse = (one: Target, other: Target) =>
        RANK[one.state] > RANK[other.state] || (one.state === other.state && lostOf(one) > lostOf(other))
      const worst = small.reduce((a, b) => (isWorse(b, a) ? b : a))
      // A peer that does not answer at all is no narrow one.
      const isNarrow = all.some((one) => one.isNarrow)
      const sizes = all.flatMap(({ largest }) => largest ?? [])
      return {
        state: isNarrow && worst.state !== 'silent' ? 'narrow' : worst.state,
        sent: worst.sent,
        lost: lostOf(worst),
        ...(worst.ms === undefined ? {} : { ms: worst.ms }),
        ...(worst.state !== 'answers' || sizes.length === 0 ? {} : { mtu: Math.min(...sizes) }),
      }
    },
    paths(key) {
      const full = (byKey.get(key) ?? []).flatMap((id) => targets.get(id) ?? []).filter(({ isFull }) => isFull)
      return Object.fromEntries(full.map((one) => [one.family, pathOf(one)]))
    },
    times: () => times,
    tick(now) {
      const before = new Map<SubnetKey, Probe['state']>()
      const changing = (target: Target, work: () => void) => {
        if (!before.has(target.key)) before.set(target.key, this.of(target.key)?.state ?? 'unknown')
        work()
      }
      for (const socket of [sockets.v4, sockets.v6])
        for (let one = socket?.echoes?.hear(); one; one = socket?.echoes?.hear()) {
          const [target, sought, { serial, ms }] = [targets.get(one.target), searches.get(one.target), one]
          if (sought?.sentAt !== undefined && serial === sought.serial) narrowDown(sought, false, now)
          if (target?.sentAt === undefined || serial !== target.serial || (ms ?? 0) > WAIT_MS) continue
          target.ms = ms
          if (ms !== undefined && !target.isFull) count(ms)
          changing(target, () => settle(target, false, now))
        }
      let sent = 0
      for (const [id, target] of targets) {
        if (target.sentAt !== undefined && now - target.sentAt > WAIT_MS)
          changing(target, () => settle(target, true, now))
        if (target.sentAt === undefined && target.dueAt <= now && sent < MOST && send(target, now)) {
          sent++
          // After a loss of a packet of full size, a small one goes with each.
          const small = isDoubtful(target) ? twinOf(target) : undefined
          if (small && small.state !== 'silent' && send(small, now)) sent++
          // Moves the target behind the others. When more targets are due than one tick allows, each gets its turn.
          targets.delete(id)
          targets.set(id, target)
        }
      }
      for (const key of before.keys())
        for (const id of byKey.get(key) ?? []) {
          const target = targets.get(id)
          if (target) judge(target, now)
        }
      for (const [id, one] of searches) if (sent < MOST && seek(id, one, now)) sent++
      const turned = (state: Probe['state'], was: (state: Probe['state']) => boolean) =>
        [...before]
          .filter(([key, last]) => last !== state && was(last) && this.of(key)?.state === state)
          .map(([key]) => key)
      return {
        silent: turned('silent', () => true),
        narrow: turned('narrow', () => true),
        back: turned('answers', (last) => last === 'silent' || last === 'narrow'),
        sent,
      }
    },
    close() {
      sockets.v4?.echoes?.close()
      sockets.v6?.echoes?.close()
    },
  }
}

function pathOf({ isNarrow, largest, bytes, sent, results }: Target): Path {
  // The newest result is the lowest bit, and 1 means lost.
  const sinceLoss = results === 0 ? sent : Math.log2(results & -results)
  return {
    arrived: Math.min(sent, sinceLoss),
    ...(isNarrow && largest !== undefined && largest < bytes && { largest }),
  }
}

// Packets of full size were lost, and why is not known yet.
function isDoubtful({ isFull, isNarrow, results }: Target): boolean {
  return isFull && !isNarrow && (results & 1) === 1
}

const UNTRIED = {
  sentAt: undefined,
  answeredFrom: Number.NaN,
  lostFrom: Number.NaN,
  isNarrow: false,
  serial: 0,
  sent: 0,
  results: 0,
  state: 'unknown',
  ms: undefined,
  largest: undefined,
} as const
const UNSEARCHED = { low: SMALL_BYTES, sentAt: undefined, serial: 0 } as const
const KINDS = (['v4', 'v6'] as const).flatMap((family) => [[family, false] as const, [family, true] as const])

interface Socket {
  readonly from: Ip
  readonly echoes: Echoes | undefined
  readonly againAt: number
}

// Of two families, the worse state counts.
const RANK = { answers: 0, unknown: 1, silent: 2 } as const

// A size that was measured before comes first, and the next larger one after it. At the end the smallest lost size is
// asked again.
function sizeOf({ low, high, target: { largest } }: Search): number {
  if (high - low <= 1) return high
  if (largest !== undefined && largest < high && low <= largest) return low < largest ? largest : largest + 1
  return (low + high) >> 1
}

function lostOf({ results }: Target): number {
  let count = 0
  for (let left = results; left > 0; left >>= 1) count += left & 1
  return count
}
