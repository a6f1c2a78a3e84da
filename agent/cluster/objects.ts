import { networkOf } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'

// The objects of a cluster that NetworkPolicy needs, as slim values. Each `…Of` reads one object of the API and drops the rest.

/** The protocols of a port (core/v1 Protocol). */
export type Protocol = 'TCP' | 'UDP' | 'SCTP'
/** The labels of an object. */
export type Labels = Readonly<Record<string, string>>

/** A pod with addresses of its own. Pods on the host's network and pods that are over are none: they match no policy. */
export interface Pod {
  readonly namespace: string
  readonly name: string
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
/** One requirement of a selector (meta/v1 LabelSelectorRequirement). */
export interface Requirement {
  readonly key: string
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist'
  readonly values: readonly string[]
}
/** A label selector, as the list of all that it requires. An empty list selects everything. */
export type Selector = readonly Requirement[]
/** Who may talk: pods by their labels and those of their namespaces, or addresses. */
export type Peer = { readonly pods: Selector /** Absent: the policy's own namespace. */; readonly namespaces?: Selector } | { readonly cidr: Cidr; readonly except: readonly Cidr[] }
/** Where to: a protocol, with all of its ports, a range of them, or the port of a name. */
export interface Port {
  readonly protocol: Protocol
  readonly from?: number
  readonly to?: number
  readonly name?: string
}
/** What a rule allows. Absent peers are all peers, absent ports are all ports of all protocols. */
export interface Rule {
  readonly peers?: readonly Peer[]
  readonly ports?: readonly Port[]
}
/** A NetworkPolicy. A direction without rules that is there denies everything; a direction that is absent is not this policy's. */
export interface Policy {
  readonly namespace: string
  readonly name: string
  readonly pods: Selector
  readonly ingress?: readonly Rule[]
  readonly egress?: readonly Rule[]
}

/** Reads a Pod. Undefined for one that no policy can select: on the host's network, over, or without an address. Throws ValueError. */
export function podOf(raw: unknown): Pod | undefined {
  const [{ namespace, name, labels }, spec, status] = [metaOf(raw, 'Pod'), objectAt(raw, 'spec'), objectAt(raw, 'status')]
  if (spec['hostNetwork'] === true || status['phase'] === 'Succeeded' || status['phase'] === 'Failed') return undefined
  const given = listOf(status['podIPs'] ?? (status['podIP'] === undefined ? [] : [{ ip: status['podIP'] }]), `Pod ${namespace}/${name}: status.podIPs`)
  const ips = given.flatMap((one) => {
    const { ip } = (one ?? {}) as { ip?: unknown }
    return ip === undefined || ip === '' ? [] : [parseIp(ip)]
  })
  if (ips.length === 0) return undefined
  const containers = [...listOf(spec['containers'] ?? [], 'spec.containers'), ...listOf(spec['initContainers'] ?? [], 'spec.initContainers').filter((one) => (one as { restartPolicy?: unknown })?.restartPolicy === 'Always')]
  const ports = containers.flatMap((one) =>
    listOf((one as { ports?: unknown })?.ports ?? [], 'ports').flatMap((port) => {
      const { name, protocol = 'TCP', containerPort } = (port ?? {}) as { name?: unknown; protocol?: unknown; containerPort?: unknown }
      return typeof name === 'string' && isProtocol(protocol) && isPort(containerPort) ? [{ name, protocol, port: containerPort }] : []
    }),
  )
  const node = spec['nodeName']
  return { namespace, name, labels, ...(typeof node === 'string' && node !== '' && { node }), ips, ports }
}

/** Reads a Namespace. Throws ValueError. */
export function namespaceOf(raw: unknown): Namespace {
  const { name, labels } = metaOf(raw, 'Namespace')
  return { name, labels: { ...labels, 'kubernetes.io/metadata.name': name } }
}

/** Reads a NetworkPolicy (networking.k8s.io/v1). Throws ValueError with the object's name and the path of the wrong field. */
export function policyOf(raw: unknown): Policy {
  const { namespace, name } = metaOf(raw, 'NetworkPolicy')
  const what = `NetworkPolicy ${namespace}/${name}: spec`
  const spec = objectAt(raw, 'spec')
  const types = spec['policyTypes'] === undefined ? ['Ingress', ...(spec['egress'] === undefined ? [] : ['Egress'])] : listOf(spec['policyTypes'], `${what}.policyTypes`)
  const wrong = types.find((one) => one !== 'Ingress' && one !== 'Egress')
  if (wrong !== undefined) throw new ValueError(`${what}.policyTypes ${told(wrong)}: want Ingress or Egress`)
  const rules = (direction: 'ingress' | 'egress', peers: 'from' | 'to') => listOf(spec[direction] ?? [], `${what}.${direction}`).map((rule, i) => ruleOf(rule, peers, `${what}.${direction}[${i}]`))
  return {
    namespace,
    name,
    pods: selectorOf(spec['podSelector'] ?? {}, `${what}.podSelector`),
    ...(types.includes('Ingress') && { ingress: rules('ingress', 'from') }),
    ...(types.includes('Egress') && { egress: rules('egress', 'to') }),
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
    return { cidr: block, except: listOf(except ?? [], `${what}.ipBlock.except`).map((one, i) => within(cidrOf(one, `${what}.ipBlock.except[${i}]`), block, `${what}.ipBlock.except[${i}]`)) }
  }
  if (podSelector === undefined && namespaceSelector === undefined) throw new ValueError(`${what}: want podSelector, namespaceSelector or ipBlock`)
  return { pods: selectorOf(podSelector ?? {}, `${what}.podSelector`), ...(namespaceSelector !== undefined && { namespaces: selectorOf(namespaceSelector, `${what}.namespaceSelector`) }) }
}

function within(one: Cidr, block: Cidr, what: string): Cidr {
  const [inner, outer] = [split(one), split(block)]
  if (inner.family !== outer.family || inner.first < outer.first || inner.last > outer.last) throw new ValueError(`${what} ${told(one)}: want a part of ${block}`)
  return one
}

function cidrOf(value: unknown, what: string): Cidr {
  try {
    return networkOf(parseCidr(value))
  } catch (cause) {
    throw new ValueError(`${what} ${told(value)}: want a network such as 10.1.0.0/16`, { cause })
  }
}

function portOf(raw: unknown, what: string): Port {
  const { protocol = 'TCP', port, endPort } = (raw ?? {}) as Record<string, unknown>
  if (!isProtocol(protocol)) throw new ValueError(`${what}.protocol ${told(protocol)}: want TCP, UDP or SCTP`)
  if (port === undefined) return { protocol }
  if (typeof port === 'string' && /^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$/.test(port) && endPort === undefined) return { protocol, name: port }
  if (!isPort(port)) throw new ValueError(`${what}.port ${told(port)}: want a number from 1 to 65535, or the name of a port`)
  if (endPort !== undefined && (!isPort(endPort) || endPort < port)) throw new ValueError(`${what}.endPort ${told(endPort)}: want a number from ${port} to 65535`)
  return { protocol, from: port, to: endPort ?? port }
}

function selectorOf(raw: unknown, what: string): Selector {
  const { matchLabels, matchExpressions } = (raw ?? {}) as Record<string, unknown>
  const labels = Object.entries(labelsOf(matchLabels)).map(([key, value]): Requirement => ({ key, operator: 'In', values: [value] }))
  const expressions = listOf(matchExpressions ?? [], `${what}.matchExpressions`).map((one, i): Requirement => {
    const { key, operator, values } = (one ?? {}) as Record<string, unknown>
    const at = `${what}.matchExpressions[${i}]`
    if (typeof key !== 'string' || key === '') throw new ValueError(`${at}.key ${told(key)}: want the name of a label`)
    if (operator !== 'In' && operator !== 'NotIn' && operator !== 'Exists' && operator !== 'DoesNotExist') throw new ValueError(`${at}.operator ${told(operator)}: want In, NotIn, Exists or DoesNotExist`)
    const given = listOf(values ?? [], `${at}.values`).map(String)
    if ((operator === 'In' || operator === 'NotIn') === (given.length === 0)) throw new ValueError(`${at}.values: want ${given.length === 0 ? 'at least one' : 'none'} with ${operator}`)
    return { key, operator, values: given }
  })
  return [...labels, ...expressions]
}

function metaOf(raw: unknown, kind: string): { readonly namespace: string; readonly name: string; readonly labels: Labels } {
  const { name, namespace, labels } = objectAt(raw, 'metadata')
  return { name: nameOf(name, `${kind}: metadata.name`), namespace: namespace === undefined || namespace === '' ? 'default' : nameOf(namespace, `${kind}: metadata.namespace`), labels: labelsOf(labels) }
}

// DNS-1123: such a name can be part of a line of nft.
function nameOf(value: unknown, what: string): string {
  if (typeof value !== 'string' || value.length > 253 || !/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(value)) throw new ValueError(`${what} ${told(value)}: want lower-case letters, digits, "-" and ".", 253 at most`)
  return value
}

function labelsOf(raw: unknown): Labels {
  return Object.fromEntries(Object.entries((raw ?? {}) as object).flatMap(([key, value]) => (typeof value === 'string' ? [[key, value]] : [])))
}

function objectAt(raw: unknown, key: string): Readonly<Record<string, unknown>> {
  const found = (raw as Record<string, unknown> | null)?.[key]
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {}
}

function listOf(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new ValueError(`${what} ${told(value)}: want a list`)
  return value
}

function isProtocol(value: unknown): value is Protocol {
  return value === 'TCP' || value === 'UDP' || value === 'SCTP'
}

function isPort(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 65535
}

// A value in a message.
function told(value: unknown): string {
  return value === undefined ? 'is missing' : shown(value)
}
