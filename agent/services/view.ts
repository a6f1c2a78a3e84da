import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Service, Slice } from '../cluster/services.ts'
import { endpointsOf, type NodeFacts } from './endpoints.ts'
import type { Conflict } from './wanted-elements.ts'

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

function at(ip: string, port: number): string {
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`
}
