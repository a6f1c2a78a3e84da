// The life of a connection under policy (docs/decisions/0042). `livesBy` is the one place that says whether a connection
// may go on. A connection that may not gets a bit of its mark in the kernel, and the table drops its packets in both
// directions. The mark stays as long as one side sends, through restarts and loads of the table.
import {
  type Connection,
  connectionCount,
  connectionPieces,
  MANY,
  type Sought,
  setBit,
} from '../../lib/os/conntrack.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Pod } from '../cluster/objects.ts'
import type { Protocol } from '../cluster/reading.ts'
import { pauses } from '../kernel/pauses.ts'
import { decide } from './oracle.ts'
import type { Cluster, PolicyState } from './state.ts'
import { ENDED_BIT, SIDES, type Side } from './table.ts'
import { objectsOf } from './view.ts'

/**
 * A connection that the kernel knows. Addresses and port are those after the translation of a Service or a host port.
 */
export interface Flow {
  readonly source: Ip
  readonly destination: Ip
  /** `other` is a protocol without ports, such as ICMP. */
  readonly protocol: Protocol | 'other'
  readonly port: number
}
/** Whether a connection may go on. */
export type Lives = (flow: Flow) => boolean

// The numbers of protocols (IANA).
const PROTOCOLS: Readonly<Record<number, Protocol>> = { 6: 'TCP', 17: 'UDP', 132: 'SCTP' }
/** For more addresses than this, one list of all connections is cheaper than two lists for each. */
const SINGLY = 16

/**
 * Decides connections by the objects of now, as the rules decide new ones. `own` are the addresses of the node. What the
 * node sends to its own pods meets no rule.
 */
export function livesBy(state: PolicyState, cluster: Cluster, own: ReadonlySet<Ip>): Lives {
  const objects = objectsOf(cluster)
  const policies = Map.groupBy(objects.policies, ({ namespace }) => namespace)
  // Only policies of the namespaces of both ends can decide.
  const of = (end: Pod | { readonly ip: Ip }) => ('namespace' in end ? (policies.get(end.namespace) ?? []) : [])
  const end = (ip: Ip) => state.podAt(ip) ?? { ip }
  return ({ source, destination, protocol, port }) => {
    if (own.has(source) && state.isLocal(destination)) return true
    if (state.isClosed(source) || state.isClosed(destination)) return false
    const [from, to] = [end(source), end(destination)]
    const concerned = { ...objects, policies: [...new Set([...of(from), ...of(to)])] }
    // Packets of a pod to itself leave the pod only by a Service.
    const isHairpin = source === destination
    // The node of the other pod decides the rest: there the connection may come from the address of this node.
    const isOurs = (side: Side) => state.isLocal(side === 'egress' ? source : destination)
    return decide(concerned, { from, to, source, destination, protocol, port, isHairpin }, SIDES.filter(isOurs)).passes
  }
}

/**
 * Ends the connections of these addresses that may not go on, and revives those that may again. Works in turns with the
 * agent's other work. With more than a few connections it ends after `limitMs`. Gives how many may still pass by the fast
 * path: those that it has ended now, and those that ended before and take it all the same. Throws Error when the kernel
 * refuses.
 */
export async function review(
  addresses: ReadonlySet<Ip>,
  lives: Lives,
  limitMs = Number.POSITIVE_INFINITY,
): Promise<number> {
  const count = connectionCount()
  if (count === 0) return 0
  const end = performance.now() + (count < MANY ? Number.POSITIVE_INFINITY : limitMs)
  const isTheirs = ({ there, back }: Connection) => addresses.has(there.src) || addresses.has(back.src)
  let ended = 0
  for (const sought of count < MANY ? [{}] : soughtOf(addresses))
    for await (const piece of listed(sought)) {
      const own = piece.filter(isTheirs)
      const closed = own.filter((one) => !lives(flowOf(one)))
      ended += setBit(
        closed.filter((one) => !isEnded(one)),
        ENDED_BIT,
        true,
      )
      ended += closed.filter((one) => isEnded(one) && one.isOffloaded).length
      revive(own, lives)
      if (performance.now() > end) return ended
    }
  return ended
}

/** Revives all ended connections that may go on again. Gives how many stay ended. Throws as `review`. */
export async function reviewEnded(lives: Lives): Promise<number> {
  if (connectionCount() === 0) return 0
  let left = 0
  for await (const piece of listed({ bit: ENDED_BIT })) left += piece.length - revive(piece, lives)
  return left
}

function revive(all: readonly Connection[], lives: Lives): number {
  return setBit(
    all.filter((one) => isEnded(one) && lives(flowOf(one))),
    ENDED_BIT,
    false,
  )
}

function isEnded({ mark }: Connection): boolean {
  return (mark & ENDED_BIT) !== 0
}

// The answers come from where the connection goes after translation.
function flowOf({ there, back }: Connection): Flow {
  const protocol = PROTOCOLS[there.protocol]
  const port = protocol === undefined ? 0 : back.sport
  return { source: there.src, destination: back.src, protocol: protocol ?? 'other', port }
}

// A busy node tracks hundreds of thousands: other work has its turn between two pieces.
async function* listed(sought: Sought): AsyncGenerator<Connection[]> {
  const pause = pauses()
  try {
    for (const piece of connectionPieces(sought)) {
      yield piece
      await pause()
    }
  } catch (cause) {
    const effect = 'so that those that a policy no longer allows go on'
    throw new Error(`Cannot list connections, ${effect}: ${(cause as Error).message}`, { cause })
  }
}

// A connection between two of the addresses may come twice. To look at it twice does no harm. The kernel does not filter
// by IPv6 addresses.
function soughtOf(addresses: ReadonlySet<Ip>): Sought[] {
  const four = [...addresses].filter((ip) => !isSix(ip))
  const hasSix = four.length < addresses.size
  const singly = four.flatMap((ip): Sought[] => [
    { family: 4, src: ip },
    { family: 4, from: ip },
  ])
  const ofFour: Sought[] = four.length > SINGLY ? [{ family: 4 }] : singly
  return hasSix ? [...ofFour, { family: 6 }] : ofFour
}
