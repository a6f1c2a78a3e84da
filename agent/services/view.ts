import { contains, isSix } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Protocol } from '../cluster/reading.ts'
import type { Service, Slice } from '../cluster/services.ts'
import { endpointsOf, type NodeFacts } from './endpoints.ts'
import type { ServicesState } from './state.ts'
import type { Conflict, WantedElements } from './wanted-elements.ts'

/** Objects and addresses that are named at once. */
const NAMED = 20

/** One endpoint of a port, as people see it. */
export interface EndpointView {
  /** `10.1.0.2:8080`, or `[fd00::2]:8080`. */
  readonly address: string
  readonly node?: string
  readonly isLocal: boolean
  /** Why clients do not reach it. Absent when they do. */
  readonly leftOut?: string
}
/** One port of a Service, for one family. */
export interface PortView {
  readonly name: string
  /** Where clients ask: `10.96.0.1:80/TCP`. */
  readonly addresses: readonly string[]
  readonly nodePort?: number
  readonly endpoints: readonly EndpointView[]
}
/** A Service as this node serves it. */
export interface ServiceView {
  readonly namespace: string
  readonly name: string
  /** `externalTrafficPolicy Local`, `internalTrafficPolicy Local`, `affinity 10800 s`, `BGP announces 192.0.2.1`. */
  readonly notes: readonly string[]
  /** Addresses and ports that another Service has, one sentence each. They are left out of `ports`. */
  readonly lost?: readonly string[]
  readonly ports: readonly PortView[]
}

/** Where the rules lead the packets to an address and port. */
interface Translation {
  /** The address and port that were asked for, in words. */
  readonly what: string
  /** The endpoints. Empty when the rules refuse the packets. */
  readonly endpoints: readonly { readonly ip: Ip; readonly port: number }[]
}

/**
 * Describes a Service: its addresses, its endpoints, and why one is left out. `announced`: addresses by BGP.
 * `conflicts`: the addresses and ports that another Service has. Pure.
 */
export function viewOf(
  service: Service,
  slices: readonly Slice[],
  node: NodeFacts,
  announced: ReadonlySet<Ip> = new Set(),
  conflicts: readonly Conflict[] = [],
): ServiceView {
  const lost = new Set(conflicts.map(({ name }) => name))
  const { namespace, name, ports, clusterIPs, externalIPs, balancerIPs, affinitySeconds } = service
  const all = [...new Set([...clusterIPs, ...externalIPs, ...balancerIPs])]
  const byBgp = all.filter((ip) => announced.has(ip))
  const families = ([4, 6] as const).filter((family) => all.some((ip) => isSix(ip) === (family === 6)))
  return {
    namespace,
    name,
    notes: [
      ...(service.isExternalLocal ? ['externalTrafficPolicy Local'] : []),
      ...(service.isInternalLocal ? ['internalTrafficPolicy Local'] : []),
      ...(affinitySeconds === undefined ? [] : [`affinity ${affinitySeconds} s`]),
      ...(byBgp.length === 0 ? [] : [`BGP announces ${byBgp.join(', ')}`]),
      ...(service.publishesNotReady ? ['publishNotReadyAddresses'] : []),
    ],
    ...(conflicts.length > 0 && { lost: [...new Set(conflicts.map(({ text }) => text))] }),
    ports: ports.flatMap((port) =>
      families.map((family): PortView => {
        const key = (ip?: Ip) => {
          const at = `${port.protocol.toLowerCase()} . ${ip === undefined ? port.nodePort : port.port}`
          return ip === undefined ? `port${family} ${at}` : `vip${family} ${ip} . ${at}`
        }
        const own = all.filter((ip) => isSix(ip) === (family === 6) && !lost.has(key(ip)))
        const hasNodePort = port.nodePort !== undefined && !lost.has(key())
        return {
          name: port.name,
          addresses: own.map((ip) => `${at(ip, port.port)}/${port.protocol}`),
          ...(hasNodePort && { nodePort: port.nodePort }),
          endpoints: endpointsOf(service, port, family, slices, node)
            .listed()
            .map(({ endpoint, address, why }) => ({
              address: at(endpoint.ip, Number(address.split(' . ')[1])),
              ...(endpoint.node !== undefined && { node: endpoint.node }),
              isLocal: endpoint.node === node.name,
              ...(why !== undefined && { leftOut: why }),
            })),
        }
      }),
    ),
  }
}

/** All Services, sorted by name. `announced`: addresses by BGP. */
export function viewsOf(state: ServicesState, announced?: ReadonlySet<Ip>): ServiceView[] {
  const conflicts = Map.groupBy(state.wanted.conflicts, ({ loser }) => loser)
  return [...state.services]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, service]) => viewOf(service, state.slicesOf(key), state.node, announced, conflicts.get(key)))
}

/**
 * Where the rules lead packets to this address and port. Undefined when they leave the packets alone. `isOfNode` says
 * whether the address is one of the node, and `clusterIPs` are the networks of ClusterIPs. Pure.
 */
export function translationOf(
  wanted: Pick<WantedElements, 'served' | 'isClusterIP'>,
  { ip, protocol, port }: { readonly ip: Ip; readonly protocol: Protocol; readonly port: number },
  isOfNode: boolean,
  clusterIPs: readonly Cidr[] = [],
): Translation | undefined {
  const [family, word] = [isSix(ip) ? 6 : 4, protocol.toLowerCase()]
  const vip = wanted.served.get(`vip${family} ${ip} . ${word} . ${port}`)
  const nodePort = isOfNode ? wanted.served.get(`port${family} ${word} . ${port}`) : undefined
  const what = `${ip} port ${port}/${protocol}`
  const frontend = vip ?? nodePort
  if (frontend)
    return {
      what: `${what} is ${vip ? "a Service's" : 'a NodePort'}`,
      endpoints: [...new Set([...frontend.cluster, ...frontend.local])].map(endpointAt),
    }
  // Ports of a ClusterIP that the Service does not have are refused.
  if (wanted.isClusterIP(ip)) return { what: `${what} is no port of the Service`, endpoints: [] }
  const isUnallocated = clusterIPs.some((network) => contains(network, ip))
  return isUnallocated ? { what: `${ip} is a ClusterIP of no Service`, endpoints: [] } : undefined
}

/** What is wrong with the objects, one sentence each: why they may be out of date, and those that nobody can read. */
export function objectProblems({ trouble, refused }: Pick<ServicesState, 'trouble' | 'refused'>): string[] {
  return [
    ...(trouble === undefined ? [] : [`${trouble}; the last known objects are programmed`]),
    ...refused.slice(0, NAMED).map((text) => `${text}; the other objects are programmed`),
  ]
}

/** What is wrong with addresses, one sentence each: those that another Service has, and `problems` with all of them. */
export function addressProblems(
  { wanted }: Pick<ServicesState, 'wanted'>,
  { problems }: { readonly problems: readonly string[] },
): string[] {
  const texts = [...new Set(wanted.conflicts.map(({ text }) => text))]
  const more = texts.length > NAMED ? [`${texts.length - NAMED} more: plumb services names them`] : []
  return [...texts.slice(0, NAMED), ...more, ...problems]
}

// nft's text `10.1.0.2 . 8080`.
function endpointAt(text: string): { readonly ip: Ip; readonly port: number } {
  const [ip = '', port] = text.split(' . ')
  return { ip: ip as Ip, port: Number(port) }
}

function at(ip: string, port: number): string {
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`
}
