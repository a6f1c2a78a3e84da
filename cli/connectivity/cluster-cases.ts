import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { EchoAddress } from './echo-server.ts'
import type { EndFacts, PlaceName } from './end.ts'
import { FAMILIES, type Route, type Side, type Test, type Way } from './routes.ts'
import type { ClusterDns, TestService } from './test-objects.ts'
import { DENIED_PORT } from './test-pods.ts'

// The cases that need objects in the Kubernetes API. All of them settle: the nodes learn of the objects after a moment.

/** What the Kubernetes API has for the cases. */
export interface ClusterFacts {
  /** The Service of the first pod of each node, by the name of the node. */
  readonly services: ReadonlyMap<string, TestService>
  readonly dns?: ClusterDns
}

const DNS_PORT = 53
const STREAMS: readonly Test[] = ['TCP', 'UDP']
const KEPT: readonly Test[] = ['TCP', 'UDP', 'source address']

/** A way to what leads to the first pod of a node: a Service, or a port of a node. */
type Leading = readonly [way: Way, from: PlaceName, to: 'Service' | 'node port']
const ON_ONE: readonly Leading[] = [
  ['pod → itself by Service', 'pod 1', 'Service'],
  ['pod → Service, same node', 'pod 2', 'Service'],
  ['node → Service, same node', 'node', 'Service'],
  ['pod → node port, same node', 'pod 2', 'node port'],
]
const BETWEEN: readonly Leading[] = [
  ['pod → Service, other node', 'pod 1', 'Service'],
  ['node → Service, other node', 'node', 'Service'],
  ['pod → node port, other node', 'pod 1', 'node port'],
  ['node → node port, other node', 'node', 'node port'],
]

/** The routes from one node to the Service of another, or of itself. Pure. */
export function serviceRoutes(
  ends: ReadonlyMap<string, EndFacts>,
  near: string,
  far: string,
  { services }: ClusterFacts,
): Route[] {
  const [from, to] = [ends.get(near) as EndFacts, ends.get(far) as EndFacts]
  const service = services.get(far)
  if (!service) return []
  return (near === far ? ON_ONE : BETWEEN).flatMap(([way, place, kind]) =>
    FAMILIES.flatMap(([family, key]): Route[] => {
      const [sender, vip, node] = [from.places[place][key], service[key], to.places.node[key]]
      // A node of a cluster with one family has node ports of that family only.
      if (!sender || !vip || !node || !to.places['pod 1'][key]) return []
      const address = kind === 'Service' ? vip : { ip: node.ip, ...service.nodePorts }
      // A pod keeps its address to a Service, but to itself: its own answer would not come back by the node.
      const others = place === 'node' || near === far ? from.addresses : []
      return [
        {
          way,
          family,
          from: { node: near, place, address: sender },
          to: { node: far, place: kind, address },
          tests: kind === 'Service' ? KEPT : STREAMS,
          mtu: from.mtu,
          sources: [sender.ip, ...others],
          settles: true,
        },
      ]
    }),
  )
}

/** The routes from a pod of a node to the name servers of the cluster. Pure. */
export function dnsRoutes(ends: ReadonlyMap<string, EndFacts>, near: string, { dns }: ClusterFacts): Route[] {
  const from = ends.get(near) as EndFacts
  return (dns?.servers ?? []).flatMap((ip): Route[] => {
    const family = isSix(ip) ? 'IPv6' : 'IPv4'
    const sender = from.places['pod 1'][family === 'IPv6' ? 'v6' : 'v4']
    const [has] = dns?.ips ?? []
    if (!sender || !has || !dns) return []
    return [
      {
        way: 'pod → DNS of the cluster',
        family,
        from: { node: near, place: 'pod 1', address: sender },
        to: { node: '', place: 'DNS', address: { ip, tcp: DNS_PORT, udp: DNS_PORT } },
        tests: STREAMS,
        mtu: from.mtu,
        sources: [],
        lookUp: { name: dns.name, has },
      },
    ]
  })
}

/** The routes from a pod of one node to a pod of another that a policy isolates, or of itself. Pure. */
export function policyRoutes(ends: ReadonlyMap<string, EndFacts>, near: string, far: string): Route[] {
  const [from, to] = [ends.get(near) as EndFacts, ends.get(far) as EndFacts]
  const where = near === far ? 'same node' : 'other node'
  return FAMILIES.flatMap(([family, key]): Route[] => {
    const [sender, receiver] = [from.places['pod 1'][key], to.places['pod 2'][key]]
    if (!sender || !receiver || !to.hasPolicy) return []
    const route = (way: Way, address: EchoAddress, more: Partial<Route>): Route => ({
      way,
      family,
      from: side(near, 'pod 1', sender),
      to: side(far, 'pod 2', address),
      tests: STREAMS,
      mtu: from.mtu,
      sources: [sender.ip],
      settles: true,
      ...more,
    })
    return [
      route(`policy allows, ${where}`, receiver, {}),
      route(`policy denies, ${where}`, at(receiver.ip, DENIED_PORT), { isDenied: true }),
    ]
  })
}

function side(node: string, place: PlaceName, address: EchoAddress): Side {
  return { node, place, address }
}

function at(ip: Ip, port: number): EchoAddress {
  return { ip, tcp: port, udp: port }
}
