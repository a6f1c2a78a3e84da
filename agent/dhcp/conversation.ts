import type { Result } from '../../lib/cni/result.ts'
import type { Heard, Wire } from '../../lib/os/packets.ts'
import type { Wants } from '../../lib/pools/dhcp.ts'
import type { Mac, NetnsPath } from '../../lib/text/values.ts'

/** How long a client waits, in milliseconds. */
export interface Timing {
  /** For one answer, sent for again meanwhile. */
  readonly timeoutMs: number
  /** Between two of the same message, at most. */
  readonly resendMaxMs: number
  /** For a first lease, all in all. */
  readonly resendTimeoutMs: number
  /** Servers are to broadcast what they answer. */
  readonly broadcast: boolean
}
/** Who asks. */
export interface Who {
  /** Names the attachment to servers. */
  readonly client: string
  readonly mac: Mac
  readonly wants: Wants
}
/** A client on its open link, and when it is to end. */
export interface Session extends Who {
  readonly wire: Wire
  readonly netns: NetnsPath
  readonly ifname: string
  readonly timing: Timing
  readonly signal: AbortSignal
}
/** When a lease has to be asked about, in milliseconds since 1970. */
export interface Times {
  readonly renewAt: number
  readonly rebindAt: number
  readonly expiresAt: number
}
/** One version of DHCP. */
export interface Protocol<B extends Times> {
  readonly version: 4 | 6
  /** A first lease; with `again` only that same address counts. Undefined when no server gave one before `untilMs` (performance.now). Rejects when the signal says so. */
  acquire(session: Session, untilMs: number, again?: B): Promise<B | undefined>
  /** The lease for longer, from its own server or from any; undefined without an answer before `untilMs`, `refused` when a server says that it holds no longer. */
  extend(session: Session, untilMs: number, bound: B, from: 'own' | 'any'): Promise<B | 'refused' | undefined>
  /** The packet that gives it back, and where that goes on the link. */
  release(who: Who, bound: B): { readonly to: Mac; readonly packet: Uint8Array }
  result(bound: B): Result
  /** What the link's neighbours are told of a new address: a packet of this EtherType. */
  announcement?(bound: B, mac: Mac): { readonly to: Mac; readonly packet: Uint8Array; readonly type: number }
}

const FIRST_MS = 1000
const LONGEST_STEP_MS = 20

/** Sends again and again, the pauses doubling from one second, and gives the first thing that `judge` makes of what comes; undefined when none came before `untilMs` (performance.now). Rejects when the signal says so. */
export async function converse<T>({ wire, timing, signal }: Session, untilMs: number, send: () => void, judge: (heard: Heard) => T | undefined): Promise<T | undefined> {
  for (let pause = FIRST_MS; performance.now() < untilMs; pause = Math.min(pause * 2, timing.resendMaxMs)) {
    send()
    // RFC 2131 section 4.1, RFC 8415 section 15: so that clients which began together do not stay together.
    const found = await hearing(wire, Math.min(untilMs, performance.now() + pause * (0.9 + Math.random() / 5)), signal, judge)
    if (found !== undefined) return found
  }
  return undefined
}

async function hearing<T>(wire: Wire, until: number, signal: AbortSignal, judge: (heard: Heard) => T | undefined): Promise<T | undefined> {
  for (let step = 1; ; step = Math.min(step * 2, LONGEST_STEP_MS)) {
    for (let heard = wire.hear(); heard; heard = wire.hear()) {
      const found = judge(heard)
      if (found !== undefined) return found
    }
    signal.throwIfAborted()
    if (performance.now() >= until) return undefined
    await Bun.sleep(step)
  }
}

/** A number of this many bytes that nobody guesses. */
export function random(size: 3 | 4): number {
  const [value = 0] = crypto.getRandomValues(new Uint32Array(1))
  return value % 256 ** size
}
