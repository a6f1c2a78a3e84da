import { shown, ValueError } from '../../../lib/text/errors.ts'
import { type Cidr, parseCidr, parseIp, split } from '../../../lib/text/ip.ts'
import { both } from '../../lease/families.ts'
import { type Both, decodeLease, encodeValue, type Lease } from '../../lease/lease.ts'
import type { NetworkConf, Pool } from '../../lease/network-configuration.ts'
import type { Snapshot } from '../store.ts'

/** The kept data of a Node: its name, its pod CIDRs, and flannel's annotations without their prefix. */
export interface KubeNode {
  readonly name: string
  /** The creation time, in milliseconds since 1970. */
  readonly created: number
  /** From `spec.podCIDRs`, or from `spec.podCIDR` when that is absent. */
  readonly podCidrs: readonly string[]
  readonly annotations: Readonly<Record<string, string>>
  readonly zone?: string
  /** The condition Ready is Unknown: the node's kubelet no longer reports. Absent for the own Node. */
  readonly isAway?: true
  /** The status of the condition NetworkUnavailable. Absent when there is no such condition, or for another node. */
  readonly networkUnavailable?: string
}

/** flannel's annotations of a Node, without the prefix (pkg/subnet/kube/annotations.go). */
export const NAMES = {
  managed: 'kube-subnet-manager',
  backend: 'backend-type',
  data: { v4: 'backend-data', v6: 'backend-v6-data' },
  ip: { v4: 'public-ip', v6: 'public-ipv6' },
  overwrite: { v4: 'public-ip-overwrite', v6: 'public-ipv6-overwrite' },
  own: { v4: 'node-public-ip', v6: 'node-public-ipv6' },
  /** Plumb's own. flannel passes it over. */
  version: 'plumb-version',
} as const

const FAMILIES = ['v4', 'v6'] as const
/** The annotations that a node reads of every node. */
const READ: readonly string[] = [
  NAMES.managed,
  NAMES.backend,
  NAMES.version,
  ...Object.values(NAMES.data),
  ...Object.values(NAMES.ip),
]
/** The annotations that a node reads of its own Node. */
const OWN: readonly string[] = [...READ, ...Object.values(NAMES.overwrite), ...Object.values(NAMES.own)]
/** The label of a node's zone (Kubernetes' well-known labels). */
const ZONE = 'topology.kubernetes.io/zone'
/** No annotation of a backend has more characters. */
const LONGEST = 4096

/**
 * The kept data of a Node from the API. Nodes other than `own` keep fewer annotations, and of their conditions only whether they are away. Throws
 * ValueError for an invalid Node.
 */
export function projectNode(raw: unknown, prefix: string, own: string): KubeNode {
  const { metadata, spec, status } = (raw ?? {}) as {
    metadata?: Record<string, unknown>
    spec?: Record<string, unknown>
    status?: Record<string, unknown>
  }
  const name = metadata?.['name']
  if (typeof name !== 'string') throw new ValueError('It has no name')
  const isOwn = name === own
  const annotations: Record<string, string> = {}
  const all = (metadata?.['annotations'] ?? {}) as Record<string, unknown>
  for (const key of isOwn ? OWN : READ) {
    const value = all[`${prefix}${key}`]
    if (typeof value !== 'string') continue
    if (value.length > LONGEST)
      throw new ValueError(`its annotation ${prefix}${key} has more than ${LONGEST} characters`)
    annotations[key] = value
  }
  const created = Date.parse(String(metadata?.['creationTimestamp'] ?? ''))
  const zone = zoneOf(metadata?.['labels'])
  const condition = isOwn ? conditionOf(status, 'NetworkUnavailable') : undefined
  const isAway = !isOwn && conditionOf(status, 'Ready') === 'Unknown'
  return {
    name,
    created: Number.isNaN(created) ? 0 : created,
    podCidrs: podCidrsOf(spec),
    annotations,
    ...(zone !== undefined && { zone }),
    ...(isAway && { isAway }),
    ...(condition !== undefined && { networkUnavailable: condition }),
  }
}

// The API allows 63 characters in the value of a label.
function zoneOf(labels: unknown): string | undefined {
  const zone = (labels as Record<string, unknown> | null | undefined)?.[ZONE]
  return typeof zone === 'string' && zone !== '' && zone.length <= 63 ? zone : undefined
}

function podCidrsOf(spec: Readonly<Record<string, unknown>> | null | undefined): string[] {
  const { podCIDRs: all, podCIDR: one } = spec ?? {}
  if (Array.isArray(all)) return all.map(String)
  return typeof one === 'string' && one !== '' ? [one] : []
}

/**
 * The subnets that Kubernetes gave a node, in the families of the network. Throws ValueError. Its message is a clause
 * such as `it has no pod CIDR`.
 */
export function subnetsOf({ podCidrs }: Pick<KubeNode, 'podCidrs'>, conf: Pick<NetworkConf, 'v4' | 'v6'>): Both<Cidr> {
  if (podCidrs.length > 2) throw new ValueError(`it has ${podCidrs.length} pod CIDRs; want one per family`)
  const found: { v4?: Cidr; v6?: Cidr } = {}
  for (const text of podCidrs) {
    const cidr = parseCidr(text)
    const family = split(cidr).family === 4 ? 'v4' : 'v6'
    const pool = conf[family]
    if (found[family]) throw new ValueError(`its pod CIDRs ${podCidrs.join(' and ')} are of one family`)
    if (pool) found[family] = within(pool, cidr)
  }
  for (const family of FAMILIES) {
    if (!conf[family] || found[family]) continue
    const { network } = conf[family]
    const flags = `kube-controller-manager --allocate-node-cidrs=true --cluster-cidr=${network}`
    throw new ValueError(`it has no pod CIDR for ${network}; want one (${flags})`)
  }
  return found
}

/**
 * The lease of a Node. Undefined for a Node that flannel does not manage, or that has no pod CIDR yet. Throws
 * ValueError. Its message is a clause.
 */
export function leaseOf(node: KubeNode, conf: Pick<NetworkConf, 'v4' | 'v6'>): Lease | undefined {
  const { annotations, name, podCidrs, zone, isAway } = node
  if (annotations[NAMES.managed] !== 'true' || podCidrs.length === 0) return undefined
  const subnets = subnetsOf(node, conf)
  const value = {
    BackendType: annotations[NAMES.backend] ?? '',
    ...(subnets.v4 && { PublicIP: addressOf(annotations, 'v4'), BackendData: dataOf(annotations, 'v4') }),
    ...(subnets.v6 && { PublicIPv6: addressOf(annotations, 'v6'), BackendV6Data: dataOf(annotations, 'v6') }),
  }
  const version = annotations[NAMES.version]
  return {
    node: name,
    ...decodeLease(subnets, JSON.stringify(value)),
    ...(version !== undefined && { version }),
    ...(zone !== undefined && { zone }),
    ...(isAway && { isAway }),
  }
}

/**
 * The leases of all nodes, oldest first. `read` is `leaseOf`. When two nodes have overlapping subnets, only the older
 * node has a lease.
 */
export function snapshotOf(
  nodes: Iterable<KubeNode>,
  refused: ReadonlyMap<string, string>,
  read: (node: KubeNode) => Lease | undefined,
): Snapshot {
  const unreadable = [...refused].map(([key, why]) => ({ key, why }))
  const leases: Lease[] = []
  const held = { v4: [], v6: [] } as { readonly [K in 'v4' | 'v6']: Span[] }
  for (const node of [...nodes].sort((a, b) => a.created - b.created || (a.name < b.name ? -1 : 1))) {
    try {
      const lease = read(node)
      if (!lease) continue
      const spans = FAMILIES.flatMap((family) => spanOf(lease, family, held[family]))
      const other = spans.flatMap(({ at, all, last }) => (all[at] && all[at].first <= last ? all[at].lease : []))[0]
      if (other) throw overlapError(lease.subnets, other.node ?? '')
      leases.push(lease)
      for (const { first, last, at, all } of spans) all.splice(at, 0, { first, last, lease })
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      unreadable.push({ key: node.name, why: cause.message })
    }
  }
  return { leases, unreadable }
}

/** The error of a node whose subnets overlap those of an older node. */
export function overlapError(subnets: Both<Cidr>, older: string): ValueError {
  const cidrs = both(subnets).join(' and ')
  return new ValueError(`its pod CIDR ${cidrs} overlaps that of node ${shown(older)}, which is older`)
}

/**
 * The annotations that a node publishes, byte for byte as in flannel (pkg/subnet/kube/kube.go, AcquireLease). An
 * address that an administrator set in `node` replaces the node's own address.
 */
export function annotationsOf(
  { ips, backend, data }: Pick<Lease, 'ips' | 'backend' | 'data'>,
  node: Pick<KubeNode, 'annotations'>,
): Record<string, string> {
  const published: Record<string, string> = { [NAMES.managed]: 'true', [NAMES.backend]: backend }
  for (const family of FAMILIES) {
    if (ips[family] === undefined) continue
    // A backend without data writes null, as Go does.
    const value = data[family] === undefined ? 'null' : jsonOf(data[family])
    published[NAMES.data[family]] = value
    published[NAMES.ip[family]] = overwriteOf(node, family) ?? ips[family]
  }
  return published
}

/**
 * The address that an administrator set to be published instead of the node's own address. Undefined when it is absent
 * or empty.
 */
export function overwriteOf({ annotations }: Pick<KubeNode, 'annotations'>, family: 'v4' | 'v6'): string | undefined {
  const text = annotations[NAMES.overwrite[family]]
  return text === undefined || text === '' ? undefined : text
}

// JSON in Go's spelling, as encodeValue writes it.
function jsonOf(data: unknown): string {
  const text = encodeValue({ ips: {}, backend: '', data: { v4: data } })
  return text.slice(text.indexOf('"BackendData":') + '"BackendData":'.length, -1)
}

function within({ network }: Pool, cidr: Cidr): Cidr {
  const [outer, inner] = [split(network), split(cidr)]
  if (inner.first < outer.first || inner.last > outer.last) {
    const want = "want net-conf.json and the controller manager's --cluster-cidr to say the same"
    throw new ValueError(`its pod CIDR ${cidr} lies outside the network ${network}; ${want}`)
  }
  if (inner.ip !== cidr.slice(0, cidr.indexOf('/')) || inner.bits !== inner.first)
    throw new ValueError(`its pod CIDR ${cidr} is no network`)
  return cidr
}

function addressOf(annotations: KubeNode['annotations'], family: 'v4' | 'v6'): string {
  const text = annotations[NAMES.ip[family]]
  if (text === undefined) throw new ValueError(`it has no annotation ${NAMES.ip[family]}`)
  return parseIp(text)
}

function dataOf(annotations: KubeNode['annotations'], family: 'v4' | 'v6'): unknown {
  const text = annotations[NAMES.data[family]]
  if (text === undefined || text === '') return null
  try {
    return JSON.parse(text)
  } catch {
    throw new ValueError(`its annotation ${NAMES.data[family]} ${shown(text)} is no JSON`)
  }
}

function conditionOf(
  status: Record<string, unknown> | undefined,
  type: 'NetworkUnavailable' | 'Ready',
): string | undefined {
  const conditions = status?.['conditions']
  if (!Array.isArray(conditions)) return undefined
  const found = conditions.find((one: { type?: unknown } | null) => one?.type === type) as
    | { status?: unknown }
    | undefined
  return found === undefined ? undefined : String(found.status)
}

/** A subnet and its holder. */
interface Span {
  readonly first: bigint
  readonly last: bigint
  readonly lease: Lease
}

// A subnet of a lease, and its place `at` among `all` of its family. None of these overlap, and they are in the order
// of their addresses. So only the one at that place can overlap it.
function spanOf(
  { subnets }: Lease,
  family: 'v4' | 'v6',
  all: Span[],
): { first: bigint; last: bigint; at: number; all: Span[] }[] {
  const subnet = subnets[family]
  if (subnet === undefined) return []
  const { first, last } = split(subnet)
  let [from, to] = [0, all.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if ((all[middle] as Span).last < first) from = middle + 1
    else to = middle
  }
  return [{ first, last, at: from, all }]
}
