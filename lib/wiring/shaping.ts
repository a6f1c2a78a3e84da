import type { Qdisc } from '../state/kinds/qdisc.ts'
import { digest } from '../text/digest.ts'
import type { Owner } from '../text/owner.ts'
import { type IfName, localMac, type Mac } from '../text/values.ts'

// docs/bandwidth.md has the measurements. The buffer holds a rate's bytes of so many milliseconds, or so many packets
// or bytes.
const QUEUE = { ms: 7, packets: 5 }
const BURST = { ms: 100, bytes: 125_000, leastMs: 4, leastPackets: 2 }
// The headers of Ethernet and of a VLAN, which the kernel counts.
const FRAME = 18
// The largest piece that TCP gives to a link, which the link then splits.
const WHOLE = 65_536
/**
 * A burst of this size or more means that nobody chose one. Runtimes send 2^31-1 or 2^32-1 bits together with the rate
 * of a pod.
 */
const UNCHOSEN = 2 ** 31 - 1

/** The default burst in bits, for a rate in bits per second. */
export function usualBurst(rate: number, mtu: number): number {
  return 8 * Math.max(leastBurst(rate, mtu), Math.min(BURST.bytes, Math.ceil((rate / 8000) * BURST.ms)))
}

/**
 * The token bucket for a rate and a burst in bits. The queue does not depend on the burst. It holds a few milliseconds,
 * so that answers to new packets come soon. Large segments are split, so that they fit into the queue.
 */
export function bucketOf(
  rate: number,
  burst: number,
  mtu: number,
): Pick<Qdisc, 'rate' | 'burst' | 'limit' | 'segment'> {
  const asked = Math.ceil((burst >= UNCHOSEN ? usualBurst(rate, mtu) : burst) / 8)
  // The kernel stores a burst as time, in 32 bits of 64 ns.
  const bytes = Math.max(leastBurst(rate, mtu), Math.min(asked, Math.floor((rate / 8) * 200)))
  const limit = counted(Math.max(QUEUE.packets * (mtu + FRAME), (rate / 8000) * QUEUE.ms))
  const segment = Math.max(leastBurst(0, mtu), Math.ceil(limit / 8))
  return { rate, burst: bytes, limit, ...(bytes > segment && segment < WHOLE && { segment }) }
}

// With a smaller bucket the rate is not reached, or packets do not pass at all.
function leastBurst(rate: number, mtu: number): number {
  return counted(Math.max(BURST.leastPackets * (mtu + FRAME), (rate / 8000) * BURST.leastMs))
}

// The kernel has 32 bits for each value.
function counted(bytes: number): number {
  return Math.min(Math.ceil(bytes), 2 ** 32 - 1)
}

/**
 * The ifb link that shapes the packets of an attachment. Its name derives from the interface, as the name of the host
 * end does.
 */
export function ifbOf(owner: Owner): { name: IfName; mac: Mac } {
  const hash = digest(`ifb ${owner.network} ${owner.containerId} ${owner.ifname}`)
  return { name: `bwp${hash.slice(0, 12)}` as IfName, mac: localMac(hash.slice(12)) }
}
