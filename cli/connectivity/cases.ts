import { isSix } from '../../lib/text/cidr.ts'
import { type ClusterFacts, dnsRoutes, serviceRoutes } from './cluster-cases.ts'
import type { EndFacts, PlaceName, TestEnd } from './end.ts'
import { type CaseOptions, FAMILIES, type Outside, type Route, TESTS, type Test, type Way } from './routes.ts'

/** From this many nodes on, each node is tested against NEIGHBOURS others only. */
const [MANY, NEIGHBOURS] = [20, 3]
/** Behind a port of a node or of a Service, only streams and datagrams are the pod's. */
const BY_PORT: readonly Test[] = ['TCP', 'UDP', 'source address']

/**
 * The routes between the nodes, and on each of them. Pure.
 */
export function routesOf(
  ends: ReadonlyMap<string, EndFacts>,
  { isQuick = false, outside = [], round = 0 }: CaseOptions = {},
  cluster: ClusterFacts = { services: new Map() },
): Route[] {
  const routes = (near: string, far: string) =>
    isQuick
      ? routesBetween(ends, near, far, true)
      : [
          ...routesBetween(ends, near, far, false),
          ...routesByPort(ends, near, far),
          ...serviceRoutes(ends, near, far, cluster),
        ]
  return pairsOf([...ends.keys()], round).flatMap(([near, far]) =>
    near === far && !isQuick
      ? [...routes(near, far), ...dnsRoutes(ends, near, cluster), ...routesOutside(ends, near, outside)]
      : routes(near, far),
  )
}

/**
 * Each node with itself, and with each other node, in both directions. Among many nodes each is tested against three
 * that follow it. Every round takes the next three. Pure.
 */
export function pairsOf(names: readonly string[], round: number): (readonly [string, string])[] {
  const isTested = (from: number, to: number) => {
    const distance = (to - from + names.length) % names.length
    return names.length < MANY || isInRound(distance) || isInRound(names.length - distance)
  }
  // The distance n / 2 is the largest that is not the reverse of a smaller one.
  const most = Math.floor(names.length / 2)
  const isInRound = (distance: number) =>
    distance <= most && (((distance - 1 - NEIGHBOURS * round) % most) + most) % most < NEIGHBOURS
  return names.flatMap((near, i) => [
    [near, near] as const,
    ...names.flatMap((far, j) => (i !== j && isTested(i, j) ? [[near, far] as const] : [])),
  ])
}

/** What is not tested between these nodes, and why, each in words. Pure. */
export function leftOut(
  ends: ReadonlyMap<string, EndFacts>,
  { isQuick, isPodless, outside = [] }: CaseOptions,
): [string, string][] {
  if (isPodless) return [PODS_LEFT_OUT]
  const without = [...ends].filter(([, { hostPort }]) => hostPort === undefined).map(([name]) => name)
  const why = `no plugin of the network has the capability portMappings on ${without.join(', ')}`
  const older = [...ends].filter(([, { places }]) => !answersInits(places['pod 1'])).map(([name]) => name)
  return [
    ...(isQuick ? [QUICK_LEAVES] : []),
    ...(!isQuick && without.length > 0 ? [['host ports', why] as [string, string]] : []),
    ...(!isQuick && outside.length === 0 ? [OUTSIDE_LEFT_OUT] : []),
    ...(older.length > 0 ? [['SCTP', `plumb is too old for it on ${older.join(', ')}`] as [string, string]] : []),
  ]
}

function answersInits({ v4, v6 }: TestEnd): boolean {
  return [v4, v6].every((one) => one === undefined || one.sctp !== undefined)
}

const QUICK_LEAVES: [string, string] = ['nodes, host ports, addresses outside', '--quick leaves them out']
const PODS_LEFT_OUT: [string, string] = ['all that pods send and get', '--from nodes makes no test pods']
const OUTSIDE_LEFT_OUT: [string, string] = ['addresses outside', 'none is given; see --outside']

// The host port of a node leads to its first pod.
function routesByPort(ends: ReadonlyMap<string, EndFacts>, near: string, far: string): Route[] {
  const [from, to] = [ends.get(near) as EndFacts, ends.get(far) as EndFacts]
  const port = to.hostPort
  if (port === undefined) return []
  const ways: readonly (readonly [Way, PlaceName])[] =
    near === far
      ? [
          ['pod → itself by host port', 'pod 1'],
          ['pod → host port, same node', 'pod 2'],
          ['node → its host port', 'node'],
        ]
      : [
          ['pod → host port, other node', 'pod 1'],
          ['node → host port, other node', 'node'],
        ]
  return ways.flatMap(([way, place]) =>
    FAMILIES.flatMap(([family, key]): Route[] => {
      const [sender, node] = [from.places[place][key], to.places.node[key]]
      if (!sender || !node || !to.places['pod 1'][key]) return []
      return [
        {
          way,
          family,
          from: { node: near, place, address: sender },
          to: { node: far, place: 'host port', address: { ip: node.ip, tcp: port, udp: port } },
          tests: BY_PORT,
          mtu: from.mtu,
          // A pod on the same node may have the address of its node: the answer has to come back by the node.
          sources: [sender.ip, ...from.addresses],
        },
      ]
    }),
  )
}

function routesOutside(ends: ReadonlyMap<string, EndFacts>, near: string, outside: readonly Outside[]): Route[] {
  const from = ends.get(near) as EndFacts
  return outside.flatMap(({ ip, port }): Route[] => {
    const isV6 = isSix(ip)
    const sender = from.places['pod 1'][isV6 ? 'v6' : 'v4']
    if (!sender) return []
    return [
      {
        way: 'pod → outside',
        family: isV6 ? 'IPv6' : 'IPv4',
        from: { node: near, place: 'pod 1', address: sender },
        to: { node: '', place: 'outside', address: { ip, tcp: port ?? 0, udp: 0 } },
        tests: port === undefined ? ['ICMP'] : ['TCP'],
        mtu: from.mtu,
        sources: [],
      },
    ]
  })
}

function routesBetween(ends: ReadonlyMap<string, EndFacts>, near: string, far: string, quick: boolean): Route[] {
  const [from, to] = [ends.get(near) as EndFacts, ends.get(far) as EndFacts]
  const isOne = near === far
  const all: readonly (readonly [Way, PlaceName, PlaceName])[] = isOne
    ? [
        ['pod → pod, same node', 'pod 1', 'pod 2'],
        ['pod → its node', 'pod 1', 'node'],
        ['node → its pod', 'node', 'pod 1'],
      ]
    : [
        ['pod → pod, other node', 'pod 1', 'pod 1'],
        ['pod → other node', 'pod 1', 'node'],
        ['node → pod, other node', 'node', 'pod 1'],
        ['node → other node', 'node', 'node'],
      ]
  // With pods, the ways of pods between these nodes say as much.
  const ways = all.filter(([way]) => way !== 'node → other node' || from.network === undefined)
  return ways
    .filter(([, one, other]) => !quick || (one !== 'node' && other !== 'node'))
    .flatMap(([way, one, other]) =>
      FAMILIES.flatMap(([family, key]): Route[] => {
        const [sender, receiver] = [from.places[one][key], to.places[other][key]]
        if (!sender || !receiver) return []
        // Pods keep their address to pods and to their node. To other nodes they may have that of their node.
        const others = one === 'node' || way === 'pod → other node' ? from.addresses : []
        const hasSctp = sender.sctp !== undefined && receiver.sctp !== undefined
        return [
          {
            way,
            family,
            from: { node: near, place: one, address: sender },
            to: { node: far, place: other, address: receiver },
            tests: TESTS.filter((test) => test !== 'SCTP' || hasSctp),
            mtu: from.mtu,
            sources: [sender.ip, ...others],
          },
        ]
      }),
    )
}
