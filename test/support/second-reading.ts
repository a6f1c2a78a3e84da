/**
 * A second reading of NetworkPolicy and ClusterNetworkPolicy: whether one connection passes, straight from the objects
 * as kubectl applies them. It was written from the text of the API alone, before its author had seen agent/policy. So it
 * imports nothing of plumb.
 *
 * The texts: networking/v1 types.go and "Network Policies" of the Kubernetes documentation; for ClusterNetworkPolicy
 * apis/v1alpha2/clusternetworkpolicy_types.go and site-src/api-overview.md of network-policy-api.
 * Traffic of a pod to itself is not decided here.
 */
import { BlockList, isIPv6 } from 'node:net'

type Labels = Readonly<Record<string, string>>
interface Expression {
  readonly key: string
  readonly operator: string
  readonly values?: readonly string[]
}
/** A label selector of the API. */
export interface Selector {
  readonly matchLabels?: Labels
  readonly matchExpressions?: readonly Expression[]
}
interface Meta {
  readonly name: string
  readonly namespace?: string
  readonly labels?: Labels
}
/** A pod, as far as policies look at it. */
export interface RawPod {
  readonly metadata: Meta & { readonly namespace: string }
  readonly spec: {
    readonly nodeName?: string
    readonly hostNetwork?: boolean
    readonly containers: readonly {
      readonly name: string
      readonly ports?: readonly { readonly name?: string; readonly containerPort: number; readonly protocol?: string }[]
    }[]
  }
  readonly status: { readonly phase?: string; readonly podIPs?: readonly { readonly ip: string }[] }
}
/** A node, as far as policies look at it. */
export interface RawNode {
  readonly metadata: Meta
  readonly status: { readonly addresses: readonly { readonly type: string; readonly address: string }[] }
}
/** A peer of a rule of NetworkPolicy. */
export interface RawPeer {
  readonly podSelector?: Selector
  readonly namespaceSelector?: Selector
  readonly ipBlock?: { readonly cidr: string; readonly except?: readonly string[] }
}
/** A rule of NetworkPolicy: `from` in ingress, `to` in egress. */
export interface RawRule {
  readonly from?: readonly RawPeer[]
  readonly to?: readonly RawPeer[]
  readonly ports?: readonly {
    readonly protocol?: string
    readonly port?: number | string
    readonly endPort?: number
  }[]
}
/** A NetworkPolicy. */
export interface RawPolicy {
  readonly metadata: Meta & { readonly namespace: string }
  readonly spec: {
    readonly podSelector?: Selector
    readonly policyTypes?: readonly string[]
    readonly ingress?: readonly RawRule[]
    readonly egress?: readonly RawRule[]
  }
}
interface PodsPeer {
  readonly namespaces?: Selector
  readonly pods?: { readonly namespaceSelector?: Selector; readonly podSelector: Selector }
}
/** A peer of a rule of ClusterNetworkPolicy. */
export interface RawClusterPeer extends PodsPeer {
  readonly nodes?: Selector
  readonly networks?: readonly string[]
  readonly domainNames?: readonly string[]
}
interface PortMatch {
  readonly destinationPort?: {
    readonly number?: number
    readonly range?: { readonly start: number; readonly end: number }
  }
}
/** A rule of ClusterNetworkPolicy: `from` in ingress, `to` in egress. */
export interface RawClusterRule {
  readonly action: string
  readonly from?: readonly RawClusterPeer[]
  readonly to?: readonly RawClusterPeer[]
  readonly protocols?: readonly {
    readonly tcp?: PortMatch
    readonly udp?: PortMatch
    readonly sctp?: PortMatch
    readonly destinationNamedPort?: string
  }[]
}
/** A ClusterNetworkPolicy. */
export interface RawClusterPolicy {
  readonly metadata: Meta
  readonly spec: {
    readonly tier: string
    readonly priority: number
    readonly subject: PodsPeer
    readonly ingress?: readonly RawClusterRule[]
    readonly egress?: readonly RawClusterRule[]
  }
}
/** The objects of a cluster. */
export interface World {
  readonly namespaces: readonly { readonly metadata: Meta }[]
  readonly nodes: readonly RawNode[]
  readonly pods: readonly RawPod[]
  readonly policies: readonly RawPolicy[]
  readonly clusterPolicies: readonly RawClusterPolicy[]
}
/** A new connection between two addresses. ICMP has no port. */
export interface Attempt {
  readonly from: string
  readonly to: string
  readonly protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP'
  readonly port?: number
}

type Direction = 'Ingress' | 'Egress'

/** Whether the connection passes: the egress of its source and the ingress of its target each allow it. */
export function passes(world: World, attempt: Attempt): boolean {
  return allows(world, attempt, 'Egress') && allows(world, attempt, 'Ingress')
}

function allows(world: World, attempt: Attempt, direction: Direction): boolean {
  const pod = podAt(world, direction === 'Ingress' ? attempt.to : attempt.from)
  if (pod === undefined) return true
  const admin = tierSays(world, attempt, direction, pod, 'Admin')
  if (admin === 'Accept' || admin === 'Deny') return admin === 'Accept'
  const policies = world.policies.filter(
    ({ metadata, spec }) =>
      metadata.namespace === pod.metadata.namespace &&
      selects(spec.podSelector ?? {}, pod.metadata.labels) &&
      typesOf(spec).includes(direction),
  )
  if (policies.length === 0) return tierSays(world, attempt, direction, pod, 'Baseline') !== 'Deny'
  const fromOwnNode = direction === 'Ingress' && nodeHas(world, attempt.from, ({ name }) => name === pod.spec.nodeName)
  return fromOwnNode || policies.some((policy) => policyAllows(world, attempt, direction, policy))
}

/** SetDefaults_NetworkPolicy in the API server: Ingress always, Egress with a rule. */
function typesOf({ policyTypes = [], egress = [] }: RawPolicy['spec']): readonly string[] {
  if (policyTypes.length > 0) return policyTypes
  return egress.length > 0 ? ['Ingress', 'Egress'] : ['Ingress']
}

function policyAllows(world: World, attempt: Attempt, direction: Direction, { metadata, spec }: RawPolicy): boolean {
  const address = direction === 'Ingress' ? attempt.from : attempt.to
  const isPeer = ({ ipBlock, namespaceSelector, podSelector }: RawPeer): boolean => {
    if (ipBlock !== undefined)
      return within(ipBlock.cidr, address) && !(ipBlock.except ?? []).some((cidr) => within(cidr, address))
    const pod = podAt(world, address)
    if (pod === undefined) return false
    const inSpace =
      namespaceSelector === undefined
        ? pod.metadata.namespace === metadata.namespace
        : selects(namespaceSelector, labelsOfSpace(world, pod.metadata.namespace))
    return inSpace && selects(podSelector ?? {}, pod.metadata.labels)
  }
  const isPort = ({ protocol = 'TCP', port, endPort }: NonNullable<RawRule['ports']>[number]): boolean => {
    if (protocol !== attempt.protocol) return false
    if (port === undefined) return true
    if (typeof port === 'string') return hasNamedPort(world, attempt, port)
    return attempt.port !== undefined && port <= attempt.port && attempt.port <= (endPort ?? port)
  }
  return ((direction === 'Ingress' ? spec.ingress : spec.egress) ?? []).some(({ from, to, ports = [] }) => {
    const peers = (direction === 'Ingress' ? from : to) ?? []
    return (peers.length === 0 || peers.some(isPeer)) && (ports.length === 0 || ports.some(isPort))
  })
}

/** The action of the first rule of a tier that matches. Policies of one priority keep the order of the world. */
function tierSays(world: World, attempt: Attempt, direction: Direction, own: RawPod, tier: string): string | undefined {
  const address = direction === 'Ingress' ? attempt.from : attempt.to
  const isPod = ({ namespaces, pods }: PodsPeer, pod: RawPod | undefined): boolean =>
    pod !== undefined &&
    selects(namespaces ?? pods?.namespaceSelector ?? {}, labelsOfSpace(world, pod.metadata.namespace)) &&
    selects(pods?.podSelector ?? {}, pod.metadata.labels)
  const isKnownPeer = (peer: RawClusterPeer): boolean =>
    (peer.namespaces ?? peer.pods ?? (direction === 'Egress' ? (peer.nodes ?? peer.networks) : undefined)) !== undefined
  const isPeer = (peer: RawClusterPeer): boolean => {
    if (peer.networks !== undefined) return peer.networks.some((cidr) => within(cidr, address))
    const { nodes } = peer
    if (nodes !== undefined) return nodeHas(world, address, ({ labels }) => selects(nodes, labels))
    return isPod(peer, podAt(world, address))
  }
  const isPort = (protocol: NonNullable<RawClusterRule['protocols']>[number]): boolean => {
    if (protocol.destinationNamedPort !== undefined) return hasNamedPort(world, attempt, protocol.destinationNamedPort)
    const match = { TCP: protocol.tcp, UDP: protocol.udp, SCTP: protocol.sctp, ICMP: undefined }[attempt.protocol]
    if (match?.destinationPort === undefined) return match !== undefined
    const { number = 0, range = { start: number, end: number } } = match.destinationPort
    return attempt.port !== undefined && range.start <= attempt.port && attempt.port <= range.end
  }
  const isKnownPort = ({ tcp, udp, sctp, destinationNamedPort }: NonNullable<RawClusterRule['protocols']>[number]) =>
    (tcp ?? udp ?? sctp ?? destinationNamedPort) !== undefined
  const policies = world.clusterPolicies
    .filter(({ spec }) => spec.tier === tier && isPod(spec.subject, own))
    .toSorted((a, b) => a.spec.priority - b.spec.priority)
  for (const { spec } of policies)
    for (const { action, from, to, protocols } of (direction === 'Ingress' ? spec.ingress : spec.egress) ?? []) {
      const peers = (direction === 'Ingress' ? from : to) ?? []
      // Fail closed: Accept then matches nothing, and Deny and Pass become a "Deny all". For protocols, NPEP-187 asks for
      // the same.
      if (!peers.every(isKnownPeer) || !(protocols ?? []).every(isKnownPort)) {
        if (action !== 'Accept') return 'Deny'
      } else if (peers.some(isPeer) && (protocols === undefined || protocols.some(isPort))) return action
    }
  return undefined
}

/** The pod of an address: neither on the node's network, nor finished. */
function podAt(world: World, address: string): RawPod | undefined {
  return world.pods.find(
    ({ spec, status }) =>
      spec.hostNetwork !== true &&
      !['Succeeded', 'Failed'].includes(status.phase ?? '') &&
      (status.podIPs ?? []).some(({ ip }) => ip === address),
  )
}

// The IPs among the addresses of a node. What a Hostname is, core/v1 NodeAddressType leaves open.
function nodeHas(world: World, address: string, is: (node: Meta) => boolean): boolean {
  const isAt = (one: RawNode['status']['addresses'][number]) =>
    one.address === address && (one.type === 'InternalIP' || one.type === 'ExternalIP')
  return world.nodes.some(({ metadata, status }) => is(metadata) && status.addresses.some(isAt))
}

/** Every namespace has its name as a label. */
function labelsOfSpace(world: World, name: string): Labels {
  const found = world.namespaces.find(({ metadata }) => metadata.name === name)
  return { ...found?.metadata.labels, 'kubernetes.io/metadata.name': name }
}

/** A port of the target has this name, the protocol and the number of the connection. */
function hasNamedPort(world: World, attempt: Attempt, wanted: string): boolean {
  const ports = podAt(world, attempt.to)?.spec.containers.flatMap((container) => container.ports ?? []) ?? []
  return ports.some(
    ({ name, protocol = 'TCP', containerPort }) =>
      name === wanted && protocol === attempt.protocol && containerPort === attempt.port,
  )
}

function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels = {}): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      const label = Object.hasOwn(labels, key) ? labels[key] : undefined
      if (operator === 'Exists') return label !== undefined
      if (operator === 'DoesNotExist') return label === undefined
      return (label !== undefined && values.includes(label)) === (operator === 'In')
    })
  )
}

const blocks = new Map<string, BlockList>()

function within(cidr: string, address: string): boolean {
  let block = blocks.get(cidr)
  if (block === undefined) {
    const [net = '', length] = cidr.split('/')
    block = new BlockList()
    block.addSubnet(net, Number(length), isIPv6(net) ? 'ipv6' : 'ipv4')
    blocks.set(cidr, block)
  }
  return isIPv6(cidr.split('/')[0] ?? '') === isIPv6(address) && block.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
}
