import type { Qdisc } from '../state/kinds/qdisc.ts'
import { digest, localMac } from '../text/digest.ts'
import type { Owner } from '../text/owner.ts'
import type { IfName, Mac } from '../text/values.ts'

// All measured: docs/bandwidth.md. Of a rate's bytes so many milliseconds, or so many packets or bytes.
const QUEUE = { ms: 7, packets: 5 }
const BURST = { ms: 100, bytes: 125_000, leastMs: 4, leastPackets: 2 }
// Ethernet's header and a VLAN's, which the kernel counts.
const FRAME = 18
// What TCP hands to a link in one piece, for the link to cut.
const WHOLE = 65_536
/** From here on a burst says only that nobody chose one: runtimes send 2^31-1 or 2^32-1 bits with the rate that a pod asks for. */
const UNCHOSEN = 2 ** 31 - 1

/** The burst, in bits, that a rate in bits per second gets when nobody chose one. */
export function usualBurst(rate: number, mtu: number): number {
  return 8 * Math.max(leastBurst(rate, mtu), Math.min(BURST.bytes, Math.ceil((rate / 8000) * BURST.ms)))
}

/** The bucket for a rate and a burst in bits. What may wait has nothing to do with the burst: it is a few milliseconds, so that what is asked meanwhile is answered soon. So that it has room there, what comes in large pieces is cut. */
export function bucketOf(rate: number, burst: number, mtu: number): Pick<Qdisc, 'rate' | 'burst' | 'limit' | 'segment'> {
  const asked = Math.ceil((burst >= UNCHOSEN ? usualBurst(rate, mtu) : burst) / 8)
  // The kernel counts a burst as time, in 32 bits of 64 ns.
  const bytes = Math.max(leastBurst(rate, mtu), Math.min(asked, Math.floor((rate / 8) * 200)))
  const limit = counted(Math.max(QUEUE.packets * (mtu + FRAME), (rate / 8000) * QUEUE.ms))
  const segment = Math.max(leastBurst(0, mtu), Math.ceil(limit / 8))
  return { rate, burst: bytes, limit, ...(bytes > segment && segment < WHOLE && { segment }) }
}

// With less the rate is not reached, or packets do not pass at all.
function leastBurst(rate: number, mtu: number): number {
  return counted(Math.max(BURST.leastPackets * (mtu + FRAME), (rate / 8000) * BURST.leastMs))
}

// The kernel has 32 bits for each.
function counted(bytes: number): number {
  return Math.min(Math.ceil(bytes), 2 ** 32 - 1)
}

/** The link that what an attachment sends is shaped on: of its interface alone, as its host end is. */
export function ifbOf(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`ifb ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `bwp${hash.slice(0, 12)}` as IfName, mac: localMac(hash.slice(12)) }
}
