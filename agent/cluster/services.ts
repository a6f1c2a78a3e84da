import { isSix } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import {
  cidrOf,
  ipOf,
  isPort,
  isProtocol,
  listOf,
  metaOf,
  objectAt,
  type Protocol,
  quoted,
  readableOf,
} from './reading.ts'

// Services and their endpoints, as slim values (core/v1 Service, discovery.k8s.io/v1 EndpointSlice). Each `…Of` reads
// one object of the API and drops the rest.

/** Objects with one of these labels are another proxy's, or nobody's (kube-proxy selects in the same way). */
export const NOT_OURS = ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'] as const

/** One port of a Service. */
export interface ServicePort {
  /** Empty for the only port of a Service. */
  readonly name: string
  readonly protocol: Protocol
  readonly port: number
  readonly nodePort?: number
}
/** A Service with addresses of its own. */
export interface Service {
  readonly namespace: string
  readonly name: string
  /** When the Service was made. Milliseconds since 1970. Absent in a manifest that does not say it. */
  readonly createdAt?: number
  readonly clusterIPs: readonly Ip[]
  readonly externalIPs: readonly Ip[]
  /** The load balancer's addresses that the node answers for: those without `ipMode: Proxy`. */
  readonly balancerIPs: readonly Ip[]
  /** Who may use `balancerIPs`. Empty: all. */
  readonly sourceRanges: readonly Cidr[]
  readonly ports: readonly ServicePort[]
  /** `externalTrafficPolicy: Local` and `internalTrafficPolicy: Local`. */
  readonly isExternalLocal: boolean
  readonly isInternalLocal: boolean
  /** How long a client stays with its endpoint, in seconds. Absent without session affinity. */
  readonly affinitySeconds?: number
  readonly healthCheckNodePort?: number
  /** Endpoints count as ready before they are. */
  readonly publishesNotReady: boolean
  /** What was left out because nobody can read it, one sentence each. Absent when all of it is served. */
  readonly leftOut?: readonly string[]
}
/** One address of an EndpointSlice. */
export interface Endpoint {
  readonly ip: Ip
  readonly isReady: boolean
  readonly isServing: boolean
  readonly isTerminating: boolean
  readonly node?: string
  /** The zones and nodes whose clients should use the endpoint. */
  readonly zones: readonly string[]
  readonly nodes: readonly string[]
}
/** A part of a Service's endpoints, of one family. */
export interface Slice {
  readonly namespace: string
  readonly name: string
  /** The name of its Service. */
  readonly service: string
  readonly ports: readonly { readonly name: string; readonly protocol: Protocol; readonly port: number }[]
  readonly endpoints: readonly Endpoint[]
  /** When the change happened that led to this version. Milliseconds since 1970. */
  readonly triggeredAt?: number
  /** The endpoints and ports that were left out because nobody can read them, one sentence each. Absent for none. */
  readonly leftOut?: readonly string[]
}

/** A ServiceCIDR (networking.k8s.io/v1): networks of ClusterIPs, one per family. */
export interface ServiceCidr {
  readonly name: string
  readonly cidrs: readonly Cidr[]
  /** The networks that were left out because nobody can read them, one sentence each. Absent when there are none. */
  readonly leftOut?: readonly string[]
}

/** Reads a ServiceCIDR. Networks that nobody can read are left out and named. Throws ValueError. */
export function serviceCidrOf(raw: unknown): ServiceCidr {
  const { name } = metaOf(raw, 'ServiceCIDR')
  const at = `ServiceCIDR ${name}: spec.cidrs`
  const leftOut: string[] = []
  const cidrs = readableOf(listOf(objectAt(raw, 'spec')['cidrs'] ?? [], at), at, cidrOf, leftOut)
  return { name, cidrs, ...(leftOut.length > 0 && { leftOut }) }
}

const DEFAULT_AFFINITY_S = 10_800
const MOST_AFFINITY_S = 86_400

/**
 * Reads a Service. Undefined for one without addresses: ExternalName, or headless. Addresses and source ranges that
 * nobody can read are left out and named: the rest is served. When no source range is left of those that were given,
 * nobody may use the load balancer's addresses. Throws ValueError with the object's name and the path of another wrong
 * field.
 */
export function serviceOf(raw: unknown): Service | undefined {
  const [{ namespace, name }, spec] = [metaOf(raw, 'Service'), objectAt(raw, 'spec')]
  const what = `Service ${namespace}/${name}: spec`
  const { clusterIPs: several = [spec['clusterIP']], healthCheckNodePort: health } = spec
  const isAddress = (ip: unknown) => ip !== undefined && ip !== '' && ip !== 'None'
  const clusterIPs = listOf(several, `${what}.clusterIPs`).filter(isAddress)
  if (spec['type'] === 'ExternalName' || clusterIPs.length === 0) return undefined
  const isBalanced = spec['type'] === 'LoadBalancer'
  const isExternalLocal = spec['externalTrafficPolicy'] === 'Local'
  const affinity = affinityOf(spec, what)
  const leftOut: string[] = []
  const rangesAt = `${what}.loadBalancerSourceRanges`
  const ranges = isBalanced ? listOf(spec['loadBalancerSourceRanges'] ?? [], rangesAt) : []
  const readable = readableOf(ranges, rangesAt, (one, at) => cidrOf(trimmed(one), at), leftOut)
  const externalAt = `${what}.externalIPs`
  const externalIPs = readableOf(listOf(spec['externalIPs'] ?? [], externalAt), externalAt, ordinaryIpOf, leftOut)
  const balancerAt = `Service ${namespace}/${name}: status.loadBalancer.ingress`
  const balancerIPs = isBalanced ? balancerIPsOf(raw, balancerAt, leftOut) : []
  const createdAt = timeOf(objectAt(raw, 'metadata')['creationTimestamp'])
  return {
    namespace,
    name,
    ...(createdAt !== undefined && { createdAt }),
    clusterIPs: ipsOf(clusterIPs, `${what}.clusterIPs`),
    externalIPs,
    balancerIPs,
    sourceRanges: ranges.length > 0 && readable.length === 0 ? NOBODY : readable,
    ports: listOf(spec['ports'] ?? [], `${what}.ports`).map((one, i) => servicePortOf(one, `${what}.ports[${i}]`)),
    isExternalLocal,
    isInternalLocal: spec['internalTrafficPolicy'] === 'Local',
    ...(affinity !== undefined && { affinitySeconds: affinity }),
    ...(isBalanced && isExternalLocal && isPort(health) && { healthCheckNodePort: health }),
    publishesNotReady: spec['publishNotReadyAddresses'] === true,
    ...(leftOut.length > 0 && { leftOut }),
  }
}

/**
 * Reads an EndpointSlice. Undefined for one that belongs to no Service, or has no addresses. Endpoints and ports that
 * nobody can read are left out and named: the API server takes ports such as 0. Throws ValueError with the object's
 * name and the path of another wrong field.
 */
export function sliceOf(raw: unknown): Slice | undefined {
  const { namespace, name, labels } = metaOf(raw, 'EndpointSlice')
  const what = `EndpointSlice ${namespace}/${name}`
  const { addressType, ports, endpoints, metadata } = (raw ?? {}) as Record<string, unknown>
  const service = labels['kubernetes.io/service-name']
  if (service === undefined || service === '' || addressType === 'FQDN') return undefined
  if (addressType !== 'IPv4' && addressType !== 'IPv6')
    throw new ValueError(`${what}: addressType ${quoted(addressType)}: want IPv4 or IPv6`)
  const leftOut: string[] = []
  const triggeredAt = timeOf(objectAt(metadata, 'annotations')['endpoints.kubernetes.io/last-change-trigger-time'])
  const read = (one: unknown, at: string) => endpointOf(one, addressType === 'IPv6', at)
  return {
    namespace,
    name,
    service,
    ports: readableOf(listOf(ports ?? [], `${what}: ports`), `${what}: ports`, slicePortOf, leftOut).flat(),
    endpoints: readableOf(listOf(endpoints ?? [], `${what}: endpoints`), `${what}: endpoints`, read, leftOut).flat(),
    ...(triggeredAt !== undefined && { triggeredAt }),
    ...(leftOut.length > 0 && { leftOut }),
  }
}

function slicePortOf(raw: unknown, what: string): Slice['ports'] {
  const { name, protocol = 'TCP', port } = (raw ?? {}) as Record<string, unknown>
  if (port === undefined || port === null) return []
  if (!isProtocol(protocol)) throw new ValueError(`${what}.protocol ${quoted(protocol)}: want TCP, UDP or SCTP`)
  if (!isPort(port)) throw new ValueError(`${what}.port ${quoted(port)}: want a number from 1 to 65535`)
  return [{ name: typeof name === 'string' ? name : '', protocol, port }]
}

function servicePortOf(raw: unknown, what: string): ServicePort {
  const { name, protocol = 'TCP', port, nodePort } = (raw ?? {}) as Record<string, unknown>
  if (!isProtocol(protocol)) throw new ValueError(`${what}.protocol ${quoted(protocol)}: want TCP, UDP or SCTP`)
  if (!isPort(port)) throw new ValueError(`${what}.port ${quoted(port)}: want a number from 1 to 65535`)
  if (nodePort !== undefined && nodePort !== 0 && !isPort(nodePort))
    throw new ValueError(`${what}.nodePort ${quoted(nodePort)}: want a number from 1 to 65535`)
  return { name: typeof name === 'string' ? name : '', protocol, port, ...(isPort(nodePort) && { nodePort }) }
}

function affinityOf(spec: Readonly<Record<string, unknown>>, what: string): number | undefined {
  if (spec['sessionAffinity'] !== 'ClientIP') return undefined
  const { timeoutSeconds: seconds = DEFAULT_AFFINITY_S } = objectAt(objectAt(spec, 'sessionAffinityConfig'), 'clientIP')
  const isWhole = typeof seconds === 'number' && Number.isInteger(seconds)
  if (isWhole && seconds >= 1 && seconds <= MOST_AFFINITY_S) return seconds
  const at = `${what}.sessionAffinityConfig.clientIP.timeoutSeconds`
  throw new ValueError(`${at} ${quoted(seconds)}: want a number from 1 to ${MOST_AFFINITY_S}`)
}

function balancerIPsOf(raw: unknown, what: string, leftOut: string[]): Ip[] {
  const ingress = listOf(objectAt(objectAt(raw, 'status'), 'loadBalancer')['ingress'] ?? [], what)
  const ips = ingress.flatMap((one) => {
    const { ip, ipMode } = (one ?? {}) as Record<string, unknown>
    return ip === undefined || ip === '' || ipMode === 'Proxy' ? [] : [ip]
  })
  return readableOf(ips, what, ordinaryIpOf, leftOut)
}

function endpointOf(raw: unknown, isIpv6: boolean, what: string): Endpoint[] {
  const { addresses, nodeName, conditions, hints } = (raw ?? {}) as Record<string, unknown>
  // The other addresses of an endpoint are for the same pod (discovery.k8s.io/v1: consumers use the first one).
  const [first] = listOf(addresses ?? [], `${what}.addresses`)
  if (first === undefined) return []
  const at = `${what}.addresses[0]`
  const ip = ordinaryIpOf(first, at)
  const type = isIpv6 ? 'IPv6' : 'IPv4'
  if (isSix(ip) !== isIpv6) throw new ValueError(`${at} ${quoted(ip)}: want an address of addressType ${type}`)
  const { ready, serving, terminating } = (conditions ?? {}) as Record<string, unknown>
  const isReady = ready !== false
  const nameOf = (one: unknown) => String((one as { name?: unknown } | null)?.name)
  const named = (key: string) => listOf(objectAt(raw, 'hints')[key] ?? [], `${what}.hints.${key}`).map(nameOf)
  const [zones, nodes] = hints === undefined ? [NONE, NONE] : [named('forZones'), named('forNodes')]
  return [
    {
      ip,
      isReady,
      isServing: serving === undefined ? isReady : serving === true,
      isTerminating: terminating === true,
      ...(typeof nodeName === 'string' && nodeName !== '' && { node: nodeName }),
      zones,
      nodes,
    },
  ]
}
const NONE: readonly string[] = []
// Addresses that no packet has as its source (RFC 1122, RFC 4291).
const NOBODY: readonly Cidr[] = ['255.255.255.255/32', 'ff02::1/128'] as Cidr[]

function ipsOf(all: readonly unknown[], what: string): Ip[] {
  return [...new Set(all.map((one, i) => ipOf(one, `${what}[${i}]`)))]
}

// The API server refuses these for endpoints and external addresses, but not in the status of a load balancer. A folder
// of manifests has no API server. With an endpoint 127.0.0.1, pods would reach the node's own loopback.
const SPECIAL = 'want no address of loopback, link-local or multicast, and not 0.0.0.0 or ::'
// Addresses have one text each. There may be hundreds of thousands of endpoints.
const SPECIALS =
  /^(127\.|169\.254\.|2(2[4-9]|3\d)\.|0\.0\.0\.0$|255\.255\.255\.255$|::1?$|fe[89ab][\da-f]:|ff[\da-f]{2}:)/

function isSpecial(ip: Ip): boolean {
  return SPECIALS.test(ip)
}

function ordinaryIpOf(value: unknown, what: string): Ip {
  const ip = ipOf(value, what)
  if (isSpecial(ip)) throw new ValueError(`${what} ${quoted(ip)}: ${SPECIAL}`)
  return ip
}

function timeOf(value: unknown): number | undefined {
  const time = typeof value === 'string' ? Date.parse(value) : Number.NaN
  return Number.isFinite(time) ? time : undefined
}

function trimmed(value: unknown): unknown {
  return typeof value === 'string' ? value.trim() : value
}
