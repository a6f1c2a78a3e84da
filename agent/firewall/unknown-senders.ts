import type { Ip } from '../../lib/text/ip.ts'

/**
 * An address counts as a stranger's when its packets were refused so long ago and it still has no lease. A node that
 * joins may send before its lease is known here. Milliseconds.
 */
const GRACE_MS = 30_000
/** For so long the kernel remembers an address, and the count of packets goes back. Milliseconds. */
const MEMORY_MS = 600_000

/** What the kernel has of refused packets. */
export interface Refused {
  /** The addresses of the last ten minutes. */
  readonly addresses: readonly Ip[]
  /** The number of packets since the table was loaded. */
  readonly packets: number
}

/** Who sends tunnelled packets without a lease. It looks again and again, because a lease may come a moment later. */
export class UnknownSenders {
  readonly #since = new Map<Ip, { at: number; isTold: boolean }>()
  #counts: { readonly at: number; readonly packets: number }[] = []
  #lately = 0

  /**
   * Takes what the kernel has at a time in milliseconds. `isTaken` says whether packets of an address are taken now.
   * `isCurrent` says whether the leases are. Without them nobody is judged. Gives the addresses that have become
   * strangers.
   */
  look(now: number, { addresses, packets }: Refused, isTaken: (ip: Ip) => boolean, isCurrent: boolean): Ip[] {
    const seen = new Set(addresses.filter((ip) => !isTaken(ip)))
    for (const ip of this.#since.keys()) if (!seen.has(ip)) this.#since.delete(ip)
    for (const ip of seen) {
      const known = this.#since.get(ip)
      if (!known || !(isCurrent || known.isTold)) this.#since.set(ip, { at: now, isTold: false })
    }
    // A table that was made again counts from zero.
    const isAnew = packets < (this.#counts.at(-1)?.packets ?? 0)
    this.#counts = isAnew ? [] : this.#counts.filter(({ at }) => now - at <= MEMORY_MS)
    this.#counts.push({ at: now, packets })
    this.#lately = packets - (this.#counts[0]?.packets ?? packets)
    const fresh = [...this.#since].filter(([, { at, isTold }]) => !isTold && now - at >= GRACE_MS)
    for (const [, one] of fresh) one.isTold = true
    return fresh.map(([ip]) => ip)
  }

  /** The strangers. */
  get all(): Ip[] {
    return [...this.#since].flatMap(([ip, { isTold }]) => (isTold ? [ip] : []))
  }

  /** The number of packets that were refused in the last ten minutes, at most since the first look. */
  get lately(): number {
    return this.#lately
  }
}
