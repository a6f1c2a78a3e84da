import type { Result } from '../../lib/cni/result.ts'
import type { Received, Wire } from '../../lib/os/packets.ts'
import type { Wants } from '../../lib/pools/dhcp.ts'
import type { Mac, NetnsPath } from '../../lib/text/values.ts'

/** The time limits of a client, in milliseconds, and the broadcast flag. */
export interface Timing {
  /** The limit for one answer. The client resends its message during this time. */
  readonly timeoutMs: number
  /** The longest pause between two sends of the same message. */
  readonly resendMaxMs: number
  /** The total limit for the first lease. */
  readonly resendTimeoutMs: number
  /** Whether the client asks DHCPv4 servers to broadcast their answers. */
  readonly broadcast: boolean
}
/** The client's identity and its configuration. */
export interface Who {
  /** The name of the attachment. It is the base of the client identifier for servers. */
  readonly client: string
  readonly mac: Mac
  readonly wants: Wants
}
/** A client with its open link. `signal` ends the session. */
export interface Session extends Who {
  readonly wire: Wire
  readonly netns: NetnsPath
  readonly ifname: string
  readonly timing: Timing
  readonly signal: AbortSignal
}
/** The renew time (T1), rebind time (T2) and expiry of a lease, in milliseconds since 1970. */
export interface Times {
  readonly renewAt: number
  readonly rebindAt: number
  readonly expiresAt: number
}
/** The client side of one DHCP version. `four.ts` and `six.ts` implement it. */
export interface Protocol<B extends Times> {
  readonly version: 4 | 6
  /**
   * Gets a first lease. With `again`, accepts only the same address as in that lease.
   * Undefined when no server gave a lease before `untilMs` (performance.now). Rejects when the signal aborts.
   */
  acquire(session: Session, untilMs: number, again?: B): Promise<B | undefined>
  /**
   * Extends a lease, at its own server or at any server.
   * Undefined when no answer came before `untilMs`. `refused` when a server does not extend the lease of this address.
   */
  extend(session: Session, untilMs: number, bound: B, from: 'own' | 'any'): Promise<B | 'refused' | undefined>
  /** The packet that releases the lease, and its destination Ethernet address. */
  release(who: Who, bound: B): { readonly to: Mac; readonly packet: Uint8Array }
  result(bound: B): Result
  /** The packet that announces a new address to the link's neighbours. `type` is its EtherType. */
  announcement?(bound: B, mac: Mac): { readonly to: Mac; readonly packet: Uint8Array; readonly type: number }
}

const FIRST_MS = 1000
const LONGEST_STEP_MS = 20

/**
 * Sends a message repeatedly until an answer fits. The pause starts at one second and doubles up to `resendMaxMs`.
 * Returns the first defined result of `judge` for a received packet. Undefined when no answer fitted before `untilMs`
 * (performance.now). Rejects when the signal aborts.
 */
export async function converse<T>(
  { wire, timing, signal }: Session,
  untilMs: number,
  send: () => void,
  judge: (packet: Received) => T | undefined,
): Promise<T | undefined> {
  for (let pause = FIRST_MS; performance.now() < untilMs; pause = Math.min(pause * 2, timing.resendMaxMs)) {
    send()
    // Clients that start at the same time must not send at the same time. Random pauses separate them.
    // The sources are RFC 2131 section 4.1 and RFC 8415 section 15.
    const until = Math.min(untilMs, performance.now() + pause * (0.9 + Math.random() / 5))
    const found = await listen(wire, until, signal, judge)
    if (found !== undefined) return found
  }
  return undefined
}

async function listen<T>(
  wire: Wire,
  until: number,
  signal: AbortSignal,
  judge: (packet: Received) => T | undefined,
): Promise<T | undefined> {
  for (let step = 1; ; step = Math.min(step * 2, LONGEST_STEP_MS)) {
    for (let packet = wire.hear(); packet; packet = wire.hear()) {
      const found = judge(packet)
      if (found !== undefined) return found
    }
    signal.throwIfAborted()
    if (performance.now() >= until) return undefined
    await Bun.sleep(step)
  }
}

/** An unpredictable random number of `size` bytes. */
export function random(size: 3 | 4): number {
  const [value = 0] = crypto.getRandomValues(new Uint32Array(1))
  return value % 256 ** size
}
