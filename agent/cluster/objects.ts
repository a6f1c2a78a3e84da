import { ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp, split } from '../../lib/text/ip.ts'
import {
  cidrOf,
  ipOf,
  isPort,
  isProtocol,
  type Labels,
  listOf,
  metaOf,
  objectAt,
  type Port,
  type Protocol,
  portOf,
  quoted,
  readableOf,
  type Selector,
  selectorOf,
} from './reading.ts'

// The objects of a cluster that NetworkPolicy needs, as slim values. Each `…Of` reads one object and drops the rest.

/**
 * A pod with a network of its own. Its addresses are empty as long as the API has none. Pods on the host's network and
 * pods that are over match no policy, and are left out.
 */
export interface Pod {
  readonly namespace: string
  readonly name: string
  /** The UID by which runtimes know the pod. Absent in a manifest. */
  readonly uid?: string
  readonly labels: Labels
  readonly node?: string
  readonly ips: readonly Ip[]
  /** The named ports of its containers. */
  readonly ports: readonly { readonly name: string; readonly protocol: Protocol; readonly port: number }[]
}
/** A namespace. Its labels always include `kubernetes.io/metadata.name`. */
export interface Namespace {
  readonly name: string
  readonly labels: Labels
}
/** A node, and the addresses of its Node object: internal ones first. */
export interface ClusterNode {
  readonly name: string
  readonly labels: Labels
  readonly ips: readonly Ip[]
  /** The node is being deleted, or the cluster's autoscaler is about to remove it. */
  readonly isLeaving?: true
  /** The addresses that were left out because nobody can read them, one sentence each. Absent when there are none. */
  readonly leftOut?: readonly string[]
}
/** Who may talk: pods by their labels and those of their namespaces, or addresses. */
export type Peer =
  | { readonly pods: Selector /** Absent: the policy's own namespace. */; readonly namespaces?: Selector }
  | { readonly cidr: Cidr; readonly except: readonly Cidr[] }
/** What a rule allows. Absent peers are all peers, absent ports are all ports of all protocols. */
export interface Rule {
  readonly peers?: readonly Peer[]
  readonly ports?: readonly Port[]
}
/**
 * A NetworkPolicy. A direction without rules that is there denies everything; an absent direction is not this policy's.
 */
export interface Policy {
  readonly namespace: string
  readonly name: string
  readonly pods: Selector
  readonly ingress?: readonly Rule[]
  readonly egress?: readonly Rule[]
}

/** Reads a Pod. Undefined for one that no policy can select: on the host's network, or over. Throws ValueError. */
export function podOf(raw: unknown): Pod | undefined {
  const { namespace, name, labels } = metaOf(raw, 'Pod')
  const [spec, status] = [objectAt(raw, 'spec'), objectAt(raw, 'status')]
  const isOver = status['phase'] === 'Succeeded' || status['phase'] === 'Failed'
  if (spec['hostNetwork'] === true || isOver) return undefined
  const single = status['podIP'] === undefined ? [] : [{ ip: status['podIP'] }]
  const given = listOf(status['podIPs'] ?? single, `Pod ${namespace}/${name}: status.podIPs`)
  const ips = given.flatMap((one) => {
    const { ip } = (one ?? {}) as { ip?: unknown }
    return ip === undefined || ip === '' ? [] : [parseIp(ip)]
  })
  const isSidecar = (one: unknown) => (one as { restartPolicy?: unknown } | null)?.restartPolicy === 'Always'
  const containers = [
    ...listOf(spec['containers'] ?? [], 'spec.containers'),
    ...listOf(spec['initContainers'] ?? [], 'spec.initContainers').filter(isSidecar),
  ]
  const ports = containers.flatMap((one) =>
    listOf((one as { ports?: unknown } | null)?.ports ?? [], 'ports').flatMap(namedPortOf),
  )
  const node = spec['nodeName']
  const uid = uidOf(objectAt(raw, 'metadata'))
  return {
    namespace,
    name,
    ...(uid !== undefined && { uid }),
    labels,
    ...(typeof node === 'string' && node !== '' && { node }),
    ips,
    ports,
  }
}

// The object of a static pod is a mirror, with a UID of its own. Its annotation has the UID that the kubelet gives to the
// runtime (pkg/kubelet/config/common.go, applyDefaults).
function uidOf(metadata: Readonly<Record<string, unknown>>): string | undefined {
  const mirrored = objectAt(metadata, 'annotations')['kubernetes.io/config.mirror']
  return [mirrored, metadata['uid']].find((one) => typeof one === 'string' && one !== '') as string | undefined
}

function namedPortOf(raw: unknown): Pod['ports'] {
  const { name, protocol = 'TCP', containerPort } = (raw ?? {}) as Record<string, unknown>
  const isNamed = typeof name === 'string' && isProtocol(protocol) && isPort(containerPort)
  return isNamed ? [{ name, protocol, port: containerPort }] : []
}

/** Reads a Namespace. Throws ValueError. */
export function namespaceOf(raw: unknown): Namespace {
  const { name, labels } = metaOf(raw, 'Namespace')
  return { name, labels: { ...labels, 'kubernetes.io/metadata.name': name } }
}

/** Reads a Node. Addresses that nobody can read are left out and named. Throws ValueError. */
export function clusterNodeOf(raw: unknown): ClusterNode {
  const { name, labels } = metaOf(raw, 'Node')
  const addresses = listOf(objectAt(raw, 'status')['addresses'] ?? [], `Node ${name}: status.addresses`)
  const leftOut: string[] = []
  const read = (one: unknown, at: string) => {
    const { type, address } = (one ?? {}) as { type?: unknown; address?: unknown }
    return type === 'InternalIP' || type === 'ExternalIP' ? [{ type, ip: ipOf(address, `${at}.address`) }] : []
  }
  const found = readableOf(addresses, `Node ${name}: status.addresses`, read, leftOut).flat()
  const ips = ['InternalIP', 'ExternalIP'].flatMap((wanted) =>
    found.flatMap(({ type, ip }) => (type === wanted ? ip : [])),
  )
  const taints = listOf(objectAt(raw, 'spec')['taints'] ?? [], `Node ${name}: spec.taints`)
  const isLeaving =
    objectAt(raw, 'metadata')['deletionTimestamp'] !== undefined ||
    taints.some((one) => (one as { key?: unknown } | null)?.key === REMOVED_SOON)
  return {
    name,
    labels,
    ips: [...new Set(ips)],
    ...(isLeaving && { isLeaving: true }),
    ...(leftOut.length > 0 && { leftOut }),
  }
}
/** The taint of nodes that the cluster's autoscaler removes next. kube-proxy knows it, too (pkg/proxy/node.go). */
const REMOVED_SOON = 'ToBeDeletedByClusterAutoscaler'

/** Reads a NetworkPolicy (networking.k8s.io/v1). Throws ValueError with the object's name and the field's path. */
export function policyOf(raw: unknown): Policy {
  const { namespace, name } = metaOf(raw, 'NetworkPolicy')
  const what = `NetworkPolicy ${namespace}/${name}: spec`
  const spec = objectAt(raw, 'spec')
  // The API fills in the types in the same way (SetDefaults_NetworkPolicy): an empty list counts as none, and egress
  // counts when it has a rule.
  const given = listOf(spec['policyTypes'] ?? [], `${what}.policyTypes`)
  const usual = () => (listOf(spec['egress'] ?? [], `${what}.egress`).length > 0 ? ['Ingress', 'Egress'] : ['Ingress'])
  const types = given.length > 0 ? given : usual()
  const wrong = types.find((one) => one !== 'Ingress' && one !== 'Egress')
  if (wrong !== undefined) throw new ValueError(`${what}.policyTypes ${quoted(wrong)}: want Ingress or Egress`)
  const rules = (direction: 'ingress' | 'egress', peers: 'from' | 'to') => {
    const at = `${what}.${direction}`
    return listOf(spec[direction] ?? [], at).map((rule, i) => ruleOf(rule, peers, `${at}[${i}]`))
  }
  const policy = {
    namespace,
    name,
    pods: selectorOf(spec['podSelector'] ?? {}, `${what}.podSelector`),
    ...(types.includes('Ingress') && { ingress: rules('ingress', 'from') }),
    ...(types.includes('Egress') && { egress: rules('egress', 'to') }),
  }
  const lists = listsOf([...(policy.ingress ?? []), ...(policy.egress ?? [])])
  if (lists > MOST_LISTS)
    throw new ValueError(
      `${what}: it has ${lists} different selectors of peers, lists of blocks and lists of ports; want at most ${MOST_LISTS}`,
    )
  return policy
}

/**
 * Each of them is some sets of nft. The kernel's time grows with the square of their number. 16,000 sets take 40 s, and
 * nobody else can change nft meanwhile.
 */
const MOST_LISTS = 1000

function listsOf(rules: readonly Rule[]): number {
  const lists = new Set<string>()
  for (const { peers = [], ports = [] } of rules) {
    const blocks = peers.filter((one) => 'cidr' in one)
    for (const one of peers) if ('pods' in one) lists.add(JSON.stringify(one))
    if (blocks.length > 1 || blocks.some(({ except }) => except.length > 0)) lists.add(JSON.stringify(blocks))
    if (ports.length > 1 || ports.some(({ name }) => name !== undefined)) lists.add(JSON.stringify(ports))
  }
  return lists.size
}

/**
 * What stands for a NetworkPolicy that nobody can read: its pods are isolated in both directions, all of its namespace
 * where not even its selector can be read. Undefined when it has no name.
 */
export function closedPolicyOf(raw: unknown): Policy | undefined {
  try {
    const { namespace, name } = metaOf({ metadata: { ...objectAt(raw, 'metadata'), labels: {} } }, 'NetworkPolicy')
    const closed = { namespace, name, ingress: [], egress: [] }
    try {
      return { ...closed, pods: selectorOf(objectAt(raw, 'spec')['podSelector'] ?? {}, 'podSelector') }
    } catch {
      return { ...closed, pods: [] }
    }
  } catch {
    return undefined
  }
}

function ruleOf(raw: unknown, key: 'from' | 'to', what: string): Rule {
  const rule = (raw ?? {}) as Record<string, unknown>
  const [peers, ports] = [listOf(rule[key] ?? [], `${what}.${key}`), listOf(rule['ports'] ?? [], `${what}.ports`)]
  return {
    ...(peers.length > 0 && { peers: peers.map((one, i) => peerOf(one, `${what}.${key}[${i}]`)) }),
    ...(ports.length > 0 && { ports: ports.map((one, i) => portOf(one, `${what}.ports[${i}]`)) }),
  }
}

function peerOf(raw: unknown, what: string): Peer {
  const { ipBlock, podSelector, namespaceSelector } = (raw ?? {}) as Record<string, unknown>
  if (ipBlock !== undefined) {
    const { cidr, except } = (ipBlock ?? {}) as Record<string, unknown>
    const block = cidrOf(cidr, `${what}.ipBlock.cidr`)
    const at = `${what}.ipBlock.except`
    const excepted = (one: unknown, i: number) => within(cidrOf(one, `${at}[${i}]`), block, `${at}[${i}]`)
    return { cidr: block, except: listOf(except ?? [], at).map(excepted) }
  }
  if (podSelector === undefined && namespaceSelector === undefined)
    throw new ValueError(`${what}: want podSelector, namespaceSelector or ipBlock`)
  return {
    pods: selectorOf(podSelector ?? {}, `${what}.podSelector`),
    ...(namespaceSelector !== undefined && { namespaces: selectorOf(namespaceSelector, `${what}.namespaceSelector`) }),
  }
}

function within(one: Cidr, block: Cidr, what: string): Cidr {
  const [inner, outer] = [split(one), split(block)]
  if (inner.family !== outer.family || inner.first < outer.first || inner.last > outer.last)
    throw new ValueError(`${what} ${quoted(one)}: want a part of ${block}`)
  return one
}
