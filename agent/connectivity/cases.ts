import type { Ip } from '../../lib/text/ip.ts'
import type { EchoAddress } from './echo-server.ts'
import type { EndFacts, PlaceName } from './end.ts'

/** Which way a packet goes. */
export const WAYS = [
  'pod → pod, same node',
  'pod → pod, other node',
  'pod → its node',
  'pod → other node',
  'node → its pod',
  'node → pod, other node',
] as const
type Way = (typeof WAYS)[number]
/** What is tried on a way. */
export const TESTS = ['TCP', 'UDP', 'ICMP', 'full size', 'one byte more', 'source address'] as const
/** One of TESTS. */
export type Test = (typeof TESTS)[number]
/** A place on a node, with its address of the family. */
export interface Side {
  readonly node: string
  readonly place: PlaceName
  readonly address: EchoAddress
}
/** A way of one family between two places. All TESTS are made on it. */
export interface Route {
  readonly way: Way
  readonly family: 'IPv4' | 'IPv6'
  readonly from: Side
  readonly to: Side
  /** The longest packet that the way carries, in bytes. */
  readonly mtu: number
  /** The addresses by which the receiver may know the sender. */
  readonly sources: readonly Ip[]
}

/** From this many nodes on, each node is tested against NEIGHBOURS others only. */
const [MANY, NEIGHBOURS] = [20, 3]
const FAMILIES = [
  ['IPv4', 'v4'],
  ['IPv6', 'v6'],
] as const

/**
 * The routes between the nodes, and on each of them. `quick` leaves out the nodes' own addresses. With 20 nodes or more,
 * each is tested against the three that follow it, in both directions. Pure.
 */
export function routesOf(ends: ReadonlyMap<string, EndFacts>, quick = false): Route[] {
  const names = [...ends.keys()]
  const isTested = (from: number, to: number) => {
    const distance = (to - from + names.length) % names.length
    return names.length < MANY || distance <= NEIGHBOURS || names.length - distance <= NEIGHBOURS
  }
  return names.flatMap((near, i) => [
    ...routesBetween(ends, near, near, quick),
    ...names.flatMap((far, j) => (i !== j && isTested(i, j) ? routesBetween(ends, near, far, quick) : [])),
  ])
}

function routesBetween(ends: ReadonlyMap<string, EndFacts>, near: string, far: string, quick: boolean): Route[] {
  const [from, to] = [ends.get(near) as EndFacts, ends.get(far) as EndFacts]
  const isOne = near === far
  const ways: readonly (readonly [Way, PlaceName, PlaceName])[] = isOne
    ? [
        ['pod → pod, same node', 'pod 1', 'pod 2'],
        ['pod → its node', 'pod 1', 'node'],
        ['node → its pod', 'node', 'pod 1'],
      ]
    : [
        ['pod → pod, other node', 'pod 1', 'pod 1'],
        ['pod → other node', 'pod 1', 'node'],
        ['node → pod, other node', 'node', 'pod 1'],
      ]
  return ways
    .filter(([, one, other]) => !quick || (one !== 'node' && other !== 'node'))
    .flatMap(([way, one, other]) =>
      FAMILIES.flatMap(([family, key]): Route[] => {
        const [sender, receiver] = [from.places[one][key], to.places[other][key]]
        if (!sender || !receiver) return []
        // Pods keep their address to pods and to their node. To other nodes they may have that of their node.
        const others = one === 'node' || way === 'pod → other node' ? from.addresses : []
        return [
          {
            way,
            family,
            from: { node: near, place: one, address: sender },
            to: { node: far, place: other, address: receiver },
            mtu: from.mtu,
            sources: [sender.ip, ...others],
          },
        ]
      }),
    )
}
