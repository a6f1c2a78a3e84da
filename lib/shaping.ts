import { digest, localMac } from './digest.ts'
import type { Owner } from './state.ts'
import type { IfName, Mac } from './values.ts'
/** What a token bucket is made with: bits per second, and bytes. */
export interface Bucket {
  readonly rate: number
  readonly burst: number
  readonly limit: number
}

// Measured (docs/bandwidth.md): the smallest with which the rate comes out right from 1 Mbit/s to 1 Gbit/s.
const BURST_MS = 4
const QUEUE_MS = 6
// TCP gets along with a queue of so many packets, and loses its rate with less: what a low rate's milliseconds have no room for.
const QUEUE_PACKETS = 5
// Ethernet's header and a VLAN's, which the kernel counts.
const FRAME = 18
/** From here on a burst says only that nobody chose one: runtimes send 2^31-1 or 2^32-1 bits with the rate that a pod asks for. */
const UNCHOSEN = 2 ** 31 - 1

/** The burst, in bits, that a rate in bits per second gets when nobody chose one: 4 ms of it, and two packets at least. */
export function usualBurst(rate: number, mtu: number): number {
  return 8 * Math.ceil(Math.max(2 * (mtu + FRAME), (rate / 8000) * BURST_MS))
}

/** The bucket for a rate and a burst in bits. A burst is never less than the usual one, with which the rate would not be reached, or packets not pass at all. What may wait has nothing to do with it: a few milliseconds, so that what is answered is answered soon. */
export function bucketOf(rate: number, burst: number, mtu: number): Bucket {
  const usual = usualBurst(rate, mtu)
  return {
    rate,
    burst: Math.ceil((burst >= UNCHOSEN ? usual : Math.max(usual, burst)) / 8),
    limit: Math.ceil(Math.max(QUEUE_PACKETS * (mtu + FRAME), (rate / 8000) * QUEUE_MS)),
  }
}

/** The link that what an attachment sends is shaped on: of its interface alone, as its host end is. */
export function ifbOf(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`ifb ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `bwp${hash.slice(0, 12)}` as IfName, mac: localMac(hash.slice(12)) }
}
