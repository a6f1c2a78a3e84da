// Leases without a store: types, keys and values. Keys and values match flannel byte for byte. Begin to read here.
// `network-configuration.ts` reads the configuration of the network. `allocate.ts` finds a free subnet.
import { shown, ValueError } from '../../lib/text/errors.ts'
import { bitsOf, type Cidr, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'
import { isDeep } from '../../lib/text/json.ts'
import { isNodeName } from './node-name.ts'

/** One value per address family. A family that the network does not have is absent. */
export interface Both<T> {
  readonly v4?: T
  readonly v6?: T
}

/** The subnets of a node and the data that it publishes for its peers, as the store has them. */
export interface Lease<Data = unknown> {
  /** Name of the node, if the store knows it. The leases of flannel contain no node name. */
  readonly node?: string
  /** Network addresses with their prefix length. */
  readonly subnets: Both<Cidr>
  /** Addresses that peers send to (`PublicIP`, `PublicIPv6`). */
  readonly ips: Both<Ip>
  /** `BackendType`. Empty without this key: flannel's backends udp, alloc and tencent-vpc publish none. */
  readonly backend: string
  /** The version of plumb on the node. Only Kubernetes tells it. The leases of flannel have none. */
  readonly version?: string
  /** The zone of the node (its label `topology.kubernetes.io/zone`). Only Kubernetes tells it. */
  readonly zone?: string
  /**
   * Kubernetes has no news of the node: its condition Ready is Unknown, because its kubelet no longer reports. Only
   * Kubernetes tells it.
   */
  readonly isAway?: true
  /** `BackendData` and `BackendV6Data`. */
  readonly data: Both<Data>
  /**
   * End of the lease unless the node renews it, in milliseconds since 1970. Absent for a lease without an end (a
   * reservation, or the file store without a lifetime). Also absent for leases of other nodes in etcd, because each end
   * would cost one request.
   */
  readonly expires?: number
}

/**
 * The name of a lease in every store, in flannel's format: `10.5.16.0-24`, or `10.5.16.0-24&fd00:0:0:7::-64` with IPv6.
 */
export type SubnetKey = string & { readonly __brand: 'SubnetKey' }

/**
 * Checks a node name: the characters that the name of a Kubernetes node or of a host may have. The name is part of a
 * path, so no other characters are allowed. Throws ValueError.
 */
export function parseNode(text: string): string {
  if (isNodeName(text)) return text
  const want = 'want a letter or digit, then letters, digits, "_", "." or "-", 253 at most'
  throw new ValueError(`Cannot use the node name ${shown(text)}: ${want}`)
}

// flannel's backends write objects of strings and numbers.
const DEEPEST = 8
// flannel writes this for "no IPv4 subnet".
const NONE = '0.0.0.0-0'

/** The key of a node's subnets, as flannel writes it (MakeSubnetKey). */
export function encodeKey({ v4, v6 }: Both<Cidr>): SubnetKey {
  return [v4?.replace('/', '-') ?? NONE, ...(v6 ? [v6.replace('/', '-')] : [])].join('&') as SubnetKey
}

/**
 * The subnets that a key names. Throws ValueError for an invalid key, and for a second spelling of a valid key. Two
 * keys for one subnet would give the same subnet to two nodes.
 */
export function decodeKey(text: string): Both<Cidr> {
  const [, v4 = '', v6] = /^([\d.]+-\d+)(?:&([a-f\d:]+-\d+))?$/.exec(text) ?? []
  const none = v4 === NONE && v6 !== undefined
  try {
    const subnets = { ...(!none && { v4: network(v4, 4) }), ...(v6 !== undefined && { v6: network(v6, 6) }) }
    if (encodeKey(subnets) === text) return subnets
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
  }
  throw new ValueError(`${shown(text)}: want a subnet's key such as 10.5.16.0-24 or 10.5.16.0-24&fd00:0:0:7::-64`)
}

/** The value of a lease, byte for byte as Go writes flannel's LeaseAttrs (pkg/lease/lease.go). */
export function encodeValue({ ips, backend, data }: Pick<Lease, 'ips' | 'backend' | 'data'>): string {
  const attrs = {
    PublicIP: ips.v4 ?? '0.0.0.0',
    PublicIPv6: ips.v6 ?? null,
    ...(backend && { BackendType: backend }),
    ...(data.v4 !== undefined && { BackendData: data.v4 }),
    ...(data.v6 !== undefined && { BackendV6Data: data.v6 }),
  }
  // Go's encoding/json escapes these characters, so that a browser does not read them as HTML.
  const escaped = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`
  return JSON.stringify(attrs).replace(/[<>&\u2028\u2029]/g, escaped)
}

/**
 * The lease of a key and its value. As in Go, the case of the keys in the value does not matter. Throws ValueError that
 * names the unreadable part.
 */
export function decodeLease(subnets: Both<Cidr>, text: string): Omit<Lease, 'node' | 'expires'> {
  const given = Object.entries(object(text)).filter(([, value]) => value !== null)
  const attrs = new Map(given.map(([key, value]) => [key.toLowerCase(), value]))
  const v4 = address('PublicIP', attrs.get('publicip'), 4)
  const v6 = address('PublicIPv6', attrs.get('publicipv6'), 6)
  const backend = attrs.get('backendtype') ?? ''
  if (typeof backend !== 'string') throw new ValueError(`Cannot read BackendType ${shown(backend)}: want a string`)
  // Terminals show the backend type, so only printable ASCII is allowed.
  if (!/^[!-~]{0,64}$/.test(backend))
    throw new ValueError(`Cannot read BackendType ${shown(backend)}: want a word such as vxlan`)
  if (!v4 && !v6) throw new ValueError('Cannot read PublicIP: it is missing; want the address that peers send to')
  const data = { v4: attrs.get('backenddata'), v6: attrs.get('backendv6data') }
  if (isDeep(data, DEEPEST)) {
    const want = 'want an object such as {"VtepMAC":"02:00:0a:f4:00:02"}'
    throw new ValueError(`Cannot read BackendData: it is nested too deep; ${want}`)
  }
  return {
    subnets,
    ips: { ...(v4 && { v4 }), ...(v6 && { v6 }) },
    backend,
    data: { ...(data.v4 !== undefined && { v4: data.v4 }), ...(data.v6 !== undefined && { v6: data.v6 }) },
  }
}

function network(text: string, family: 4 | 6): Cidr {
  const cidr = parseCidr(text.replace('-', '/'))
  const { family: has, bits, first, length } = split(cidr)
  // flannel reads 5 bits of an IPv4 length and 7 bits of an IPv6 length (ParseSubnetKey).
  if (has !== family || bits !== first || length === 0 || length > (family === 4 ? 31 : 127))
    throw new ValueError(`${shown(text)}: want a network of IPv${family}`)
  return cidr
}

// flannel writes the zero address (0.0.0.0) for "no address".
function address(key: string, value: unknown, family: 4 | 6): Ip | undefined {
  if (value === undefined) return undefined
  try {
    const found = parseIp(value)
    const { bits, family: has } = bitsOf(found)
    if (has === family) return bits === 0n ? undefined : found
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
  }
  throw new ValueError(`Cannot read ${key} ${shown(value)}: want an IPv${family} address`)
}

function object(text: string): object {
  const want = 'want JSON such as {"PublicIP":"172.30.0.2",…}'
  if (text.length > MOST) throw new ValueError(`Cannot read the lease: it has more than ${MOST} characters; ${want}`)
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // The error below covers invalid JSON and every JSON value that is not an object.
  }
  throw new ValueError(`Cannot read the lease ${shown(text)}: ${want}`)
}

/**
 * Longest value of a store that is parsed, in characters. A valid value of flannel has a few hundred. Some texts take
 * twenty times their size when parsed.
 */
export const MOST = 65_536
