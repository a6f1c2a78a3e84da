import { andMore } from '../../lib/text/listing.ts'
import { encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import { called } from './peers.ts'

/** The number of silent peers that a message names. */
const NAMED = 3

/** Peers that do not answer over the overlay, and those that only small packets reach. */
export interface SilentPeers {
  readonly silent: ReadonlySet<SubnetKey>
  readonly narrow: ReadonlySet<SubnetKey>
  /** The peers whose routes have the size that arrives. */
  readonly routed?: ReadonlySet<SubnetKey>
}

/** Names some of the peers, and counts the others. Pure. */
export function named(keys: readonly SubnetKey[], leases: readonly Lease[]): string {
  const few = new Set(keys.slice(0, NAMED))
  const names = leases.filter(({ subnets }) => few.has(encodeKey(subnets))).map((lease) => called(lease))
  return `${names.join(', ')}${andMore(keys.length - NAMED)}`
}

/**
 * One sentence for the silent peers, and one for the narrow ones. `mtu` is the size of the largest packets of pods in
 * bytes. `whyOf` gives the reason that the backend knows, as a clause. Pure.
 */
export function silenceOf(
  { silent, narrow, routed }: SilentPeers,
  leases: readonly Lease[],
  mtu: number,
  whyOf: ((peer: Lease) => string | undefined) | undefined,
): string[] {
  const texts: string[] = []
  if (silent.size > 0) {
    const count = silent.size > 1 ? `${silent.size} peers do` : `${silent.size} peer does`
    const why = whyOf ? reasonsOf(silent, leases, whyOf) : ''
    texts.push(`${count} not answer over the overlay: ${named([...silent], leases)}${why}`)
  }
  if (narrow.size > 0) {
    const count = narrow.size > 1 ? `${narrow.size} peers` : `${narrow.size} peer`
    const what = `packets of full size (${mtu} bytes) do not reach ${count}, small ones do`
    const why = 'a link between the nodes has a smaller MTU than the uplink'
    const fix = `raise that link's, or lower the uplink's (vxlan and wireguard: "MTU" of the backend)`
    const ways = [...narrow].filter((key) => routed?.has(key)).length
    const until = ways === 0 ? '' : `; meanwhile the routes to ${ways} of them tell pods the size that arrives`
    texts.push(`${what}: ${named([...narrow], leases)}; ${why}: ${fix}${until}`)
  }
  return texts
}

// The reasons, each with the peers that it is about.
function reasonsOf(
  silent: ReadonlySet<SubnetKey>,
  leases: readonly Lease[],
  whyOf: (peer: Lease) => string | undefined,
): string {
  const reasons = new Map<string, SubnetKey[]>()
  for (const peer of leases) {
    const key = encodeKey(peer.subnets)
    const why = silent.has(key) ? whyOf(peer) : undefined
    if (why !== undefined) reasons.set(why, [...(reasons.get(why) ?? []), key])
  }
  return [...reasons]
    .map(([why, keys]) => (keys.length === silent.size ? `; ${why}` : `; ${named(keys, leases)}: ${why}`))
    .join('')
}
