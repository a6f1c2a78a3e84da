import { shown, ValueError } from '../../../lib/text/errors.ts'
import { type Cidr, parseCidr, parseIp, split } from '../../../lib/text/ip.ts'
import { overlaps } from '../../lease/allocate.ts'
import { type Both, decodeLease, encodeValue, type Lease } from '../../lease/lease.ts'
import type { NetworkConf, Pool } from '../../lease/network-configuration.ts'
import type { Snapshot } from '../store.ts'

/** What is kept of a Node: its name, its pod CIDRs, and flannel's annotations without their prefix. */
export interface KubeNode {
  readonly name: string
  /** When it was made, in milliseconds since 1970. */
  readonly created: number
  /** `spec.podCIDRs`, else `spec.podCIDR`. */
  readonly podCidrs: readonly string[]
  readonly annotations: Readonly<Record<string, string>>
  /** The status of the condition NetworkUnavailable, when it has one. */
  readonly networkUnavailable?: string
}

/** flannel's names of what it writes on a Node, after the prefix (pkg/subnet/kube/annotations.go). */
export const NAMES = {
  managed: 'kube-subnet-manager',
  backend: 'backend-type',
  data: { v4: 'backend-data', v6: 'backend-v6-data' },
  ip: { v4: 'public-ip', v6: 'public-ipv6' },
  overwrite: { v4: 'public-ip-overwrite', v6: 'public-ipv6-overwrite' },
  own: { v4: 'node-public-ip', v6: 'node-public-ipv6' },
} as const

const FAMILIES = ['v4', 'v6'] as const
/** Those of flannel's annotations that any node reads of another. */
const READ: readonly string[] = [NAMES.managed, NAMES.backend, ...Object.values(NAMES.data), ...Object.values(NAMES.ip)]
/** Those that a node reads of its own, too. */
const OWN: readonly string[] = [...READ, ...Object.values(NAMES.overwrite), ...Object.values(NAMES.own)]
/** No annotation that a backend writes is longer. */
const LONGEST = 4096

/** What is kept of a Node as the API gives it; of all but this node's own less. Throws ValueError for what is no Node. */
export function projectNode(raw: unknown, prefix: string, own: string): KubeNode {
  const { metadata, spec, status } = (raw ?? {}) as { metadata?: Record<string, unknown>; spec?: Record<string, unknown>; status?: Record<string, unknown> }
  const name = metadata?.['name']
  if (typeof name !== 'string') throw new ValueError('It has no name')
  const isOwn = name === own
  const annotations: Record<string, string> = {}
  const all = (metadata?.['annotations'] ?? {}) as Record<string, unknown>
  for (const key of isOwn ? OWN : READ) {
    const value = all[`${prefix}${key}`]
    if (typeof value !== 'string') continue
    if (value.length > LONGEST) throw new ValueError(`its annotation ${prefix}${key} has more than ${LONGEST} characters`)
    annotations[key] = value
  }
  const cidrs = Array.isArray(spec?.['podCIDRs']) ? spec['podCIDRs'] : typeof spec?.['podCIDR'] === 'string' && spec['podCIDR'] !== '' ? [spec['podCIDR']] : []
  const created = Date.parse(String(metadata?.['creationTimestamp'] ?? ''))
  const condition = isOwn ? conditionOf(status) : undefined
  return { name, created: Number.isNaN(created) ? 0 : created, podCidrs: cidrs.map(String), annotations, ...(condition !== undefined && { networkUnavailable: condition }) }
}

/** The subnets that Kubernetes gave a node, of the families that the network has. Throws ValueError, as a clause. */
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
  for (const family of FAMILIES) if (conf[family] && !found[family]) throw new ValueError(`it has no pod CIDR for ${conf[family].network}; want one (kube-controller-manager --allocate-node-cidrs=true --cluster-cidr=${conf[family].network})`)
  return found
}

/** The lease of a Node; undefined for one that flannel does not manage, or that has no pod CIDR yet. Throws ValueError, as a clause. */
export function leaseOf(node: KubeNode, conf: Pick<NetworkConf, 'v4' | 'v6'>): Lease | undefined {
  const { annotations, name, podCidrs } = node
  if (annotations[NAMES.managed] !== 'true' || podCidrs.length === 0) return undefined
  const subnets = subnetsOf(node, conf)
  const value = {
    BackendType: annotations[NAMES.backend] ?? '',
    ...(subnets.v4 && { PublicIP: addressOf(annotations, 'v4'), BackendData: dataOf(annotations, 'v4') }),
    ...(subnets.v6 && { PublicIPv6: addressOf(annotations, 'v6'), BackendV6Data: dataOf(annotations, 'v6') }),
  }
  return { node: name, ...decodeLease(subnets, JSON.stringify(value)) }
}

/** The leases of all nodes, oldest first; `read` is `leaseOf`. Of two with one subnet the older has it: a subnet is never two nodes'. */
export function snapshotOf(nodes: Iterable<KubeNode>, refused: ReadonlyMap<string, string>, read: (node: KubeNode) => Lease | undefined): Snapshot {
  const unreadable = [...refused].map(([key, why]) => ({ key, why }))
  const leases: Lease[] = []
  const holders = new Map<string, Lease>()
  for (const node of [...nodes].sort((a, b) => a.created - b.created || (a.name < b.name ? -1 : 1))) {
    try {
      const lease = read(node)
      if (!lease) continue
      const other = holderOf(lease, holders, leases)
      if (other) throw new ValueError(`its pod CIDR ${[lease.subnets.v4, lease.subnets.v6].filter(Boolean).join(' and ')} overlaps that of node ${shown(other.node ?? '')}, which is older`)
      leases.push(lease)
      for (const subnet of [lease.subnets.v4, lease.subnets.v6]) if (subnet) holders.set(subnet, lease)
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      unreadable.push({ key: node.name, why: cause.message })
    }
  }
  return { leases, unreadable }
}

/** What a node publishes, as annotations: byte for byte flannel's (pkg/subnet/kube/kube.go, AcquireLease). `node` has what an administrator wants published in place of its own address. */
export function annotationsOf({ ips, backend, data }: Pick<Lease, 'ips' | 'backend' | 'data'>, node: Pick<KubeNode, 'annotations'>): Record<string, string> {
  const said: Record<string, string> = { [NAMES.managed]: 'true', [NAMES.backend]: backend }
  for (const family of FAMILIES) {
    if (ips[family] === undefined) continue
    // A backend that publishes nothing has no data: Go writes null.
    const value = data[family] === undefined ? 'null' : jsonOf(data[family])
    said[NAMES.data[family]] = value
    said[NAMES.ip[family]] = overwriteOf(node, family) ?? ips[family]
  }
  return said
}

/** What an administrator wants published in place of this node's own address, when it can be read. */
export function overwriteOf({ annotations }: Pick<KubeNode, 'annotations'>, family: 'v4' | 'v6'): string | undefined {
  const text = annotations[NAMES.overwrite[family]]
  return text === undefined || text === '' ? undefined : text
}

// As encodeValue writes it, which is Go's way.
function jsonOf(data: unknown): string {
  const text = encodeValue({ ips: {}, backend: '', data: { v4: data } })
  return text.slice(text.indexOf('"BackendData":') + '"BackendData":'.length, -1)
}

function within({ network }: Pool, cidr: Cidr): Cidr {
  const [outer, inner] = [split(network), split(cidr)]
  if (inner.first < outer.first || inner.last > outer.last) throw new ValueError(`its pod CIDR ${cidr} lies outside the network ${network}; want net-conf.json and the controller manager's --cluster-cidr to say the same`)
  if (inner.ip !== cidr.slice(0, cidr.indexOf('/')) || inner.bits !== inner.first) throw new ValueError(`its pod CIDR ${cidr} is no network`)
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

function conditionOf(status: Record<string, unknown> | undefined): string | undefined {
  const conditions = status?.['conditions']
  if (!Array.isArray(conditions)) return undefined
  const found = conditions.find((one: { type?: unknown } | null) => one?.type === 'NetworkUnavailable') as { status?: unknown } | undefined
  return found === undefined ? undefined : String(found.status)
}

// The same subnet is found at once; another length of it costs a look at all, which only a misconfigured cluster has.
function holderOf(lease: Lease, holders: ReadonlyMap<string, Lease>, leases: readonly Lease[]): Lease | undefined {
  const same = [lease.subnets.v4, lease.subnets.v6].flatMap((subnet) => (subnet && holders.get(subnet)) || [])[0]
  if (same) return same
  const isOther = (other: Lease) => FAMILIES.some((family) => lengthOf(other.subnets[family]) !== lengthOf(lease.subnets[family]))
  return leases.length > 0 && isOther(leases[0] as Lease) ? leases.find((other) => overlaps(other.subnets, lease.subnets)) : undefined
}

function lengthOf(subnet: Cidr | undefined): string | undefined {
  return subnet?.slice(subnet.indexOf('/'))
}
