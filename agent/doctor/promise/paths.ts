// The packets that the doctor sends, and why: each kind of path that the network of pods promises.

import { contains, isSix } from '../../../lib/text/cidr.ts'
import { type Cidr, format, type Ip, parseCidr, split } from '../../../lib/text/ip.ts'
import type { Netns } from '../../../lib/text/values.ts'
import { both } from '../../lease/families.ts'
import type { ServiceView } from '../../services/view.ts'
import { nameOf } from '../../state/reachability.ts'
import type { Status } from '../../state/status.ts'

/** The kinds of paths, the simplest first: that is the order in which a lost packet is looked for. */
export const KINDS = [
  'node → pod',
  'pod → node',
  'pod → pod',
  'node → other node',
  'pod → other node',
  'node → pod of another node',
  'pod → pod of another node',
  'pod → outside',
  'node → Service',
  'pod → Service',
] as const
/** A kind of path. */
export type Kind = (typeof KINDS)[number]

/** Where a packet begins or ends. */
export interface Place {
  /** For people: `pod x/a`, `this node`, `node n2`. */
  readonly name: string
  readonly ip: Ip
  /** Of a pod of this node, or of this node. */
  readonly ns?: Netns
}
/** A way of packets. */
export interface Path {
  readonly kind: Kind
  readonly from: Place & { readonly ns: Netns }
  readonly to: Place
  /** The length of the echo request with its IP header. 0 for a small one. */
  readonly bytes: number
  /** The port of a connection instead of an echo request. */
  readonly port?: number
}
/** A pod of this node. */
export interface LocalPod {
  readonly name: string
  readonly ips: readonly Ip[]
  readonly netns: Netns
  /** Where its routes lead by the result of its ADD. Absent when that is not known: then everywhere. */
  readonly reach?: readonly Cidr[]
}
/** What the status says of the network. Without an agent, the own subnets are known from subnet.env. */
export type PromisedState = Pick<Status, 'subnets' | 'mtu' | 'peers' | 'backend' | 'uplink'>

/** What the paths are chosen from. */
export interface Known {
  readonly pods: readonly LocalPod[]
  readonly status: PromisedState | undefined
  readonly services: readonly ServiceView[]
  /** The addresses of some pods of other nodes, by the names of the nodes. */
  readonly others: ReadonlyMap<string, readonly Ip[]>
  /** The next router of the node, per family. */
  readonly routers: readonly Ip[]
}

/** The most peers that are measured. A larger cluster has others at each call. */
const MOST_PEERS = 100
/** The most Services, of those with an endpoint. */
const MOST_SERVICES = 4

/** The pods that have addresses of this node's subnets. Others are of other networks. Pure. */
export function podsOfNode<Pod extends Pick<LocalPod, 'ips'>>(
  pods: readonly Pod[],
  status: Pick<Status, 'subnets'> | undefined,
): Pod[] {
  const subnets = status ? both(status.subnets) : []
  return pods.filter(({ ips }) =>
    ips.some((ip) => subnets.some((one) => isSix(one) === isSix(ip) && contains(one, ip))),
  )
}

/** Chooses the paths. `turn` is which peers and pods come first, and grows from call to call. Pure. */
export function pathsOf(known: Known, turn: number): Path[] {
  const reaches = new Map(known.pods.flatMap(({ netns, reach }) => (reach ? [[netns, reach] as const] : [])))
  // A pod that has no route to the other end is not meant to reach it, or to answer it.
  const isReached = (place: Place, { ip }: Place) =>
    place.ns === undefined || (reaches.get(place.ns)?.some((dst) => contains(dst, ip)) ?? true)
  return candidates(known, turn).filter(({ from, to }) => isReached(from, to) && isReached(to, from))
}

function candidates(known: Known, turn: number): Path[] {
  return ([false, true] as const).flatMap((six) => {
    const ofFamily = (ips: readonly Ip[]) => ips.find((ip) => isSix(ip) === six)
    const pods = known.pods.flatMap(({ name, ips, netns }): From[] => {
      const ip = ofFamily(ips)
      return ip === undefined ? [] : [{ name, ip, ns: netns }]
    })
    return [...hereOf(known, pods, six), ...peersOf(known, pods, six, turn), ...servicesOf(known, pods, six, turn)]
  })
}

type From = Path['from']

// Between the pods of this node, the node and the next router.
function hereOf({ status, routers }: Known, pods: readonly From[], six: boolean): Path[] {
  const own = uplinkOf(status, six)
  const router = routers.find((ip) => isSix(ip) === six)
  const node = own === undefined ? undefined : { name: 'this node', ip: own, ns: 'host' as const }
  return pods.flatMap((pod, i) => {
    const next = pods[(i + 1) % pods.length] as From
    return [
      ...(node === undefined ? [] : [path('node → pod', node, pod), path('pod → node', pod, node)]),
      ...(node === undefined ? [] : [path('node → pod', node, pod, status?.mtu)]),
      ...(next === pod ? [] : [path('pod → pod', pod, next), path('pod → pod', pod, next, status?.mtu)]),
      ...(router === undefined ? [] : [path('pod → outside', pod, { name: 'the next router', ip: router })]),
    ]
  })
}

// To each peer, to the end of its tunnel and to its pods, from one pod and from the node. Each pod has its turn, so that
// all of them send to some peer.
function peersOf({ status, others }: Known, pods: readonly From[], six: boolean, turn: number): Path[] {
  if (!status) return []
  const here = status.peers.filter(({ isAway }) => !isAway)
  const all = here.flatMap((peer) => {
    const [subnet, node] = [six ? peer.subnets.v6 : peer.subnets.v4, six ? peer.ips.v6 : peer.ips.v4]
    if (subnet === undefined) return []
    const name = nameOf(peer)
    const ends = (others.get(name) ?? []).filter((ip) => isSix(ip) === six)
    return [{ name, ends, node, tunnel: status.backend === 'host-gw' ? node : firstOf(subnet) }]
  })
  const peers = rotated(all, turn).slice(0, MOST_PEERS)
  const subnet = six ? status.subnets.v6 : status.subnets.v4
  const own = status.backend === 'host-gw' ? uplinkOf(status, six) : subnet && firstOf(subnet)
  const node = own === undefined ? undefined : { name: 'this node', ip: own as Ip, ns: 'host' as const }
  const count = Math.max(pods.length, peers.length)
  return Array.from({ length: peers.length === 0 ? 0 : count }, (_, i) => i).flatMap((i) => {
    const peer = peers[i % peers.length] as (typeof peers)[number]
    const pod = pods.length === 0 ? undefined : (pods[(i + turn) % pods.length] as From)
    const tunnel = peer.tunnel === undefined ? undefined : { name: `node ${peer.name}`, ip: peer.tunnel as Ip }
    const ends = peer.ends.map((ip) => ({ name: `a pod of node ${peer.name}`, ip }))
    return [
      ...(tunnel && node && i < peers.length ? sizes('node → other node', node, tunnel, status.mtu) : []),
      ...(tunnel && pod ? sizes('pod → other node', pod, tunnel, status.mtu) : []),
      ...(peer.node !== undefined && pod
        ? [path('pod → other node', pod, { name: `node ${peer.name}`, ip: peer.node as Ip })]
        : []),
      ...ends.flatMap((end) => [
        ...(node && i < peers.length ? [path('node → pod of another node', node, end)] : []),
        ...(pod ? sizes('pod → pod of another node', pod, end, status.mtu) : []),
      ]),
    ]
  })
}

function servicesOf({ status, services }: Known, pods: readonly From[], six: boolean, turn: number): Path[] {
  const vips = services.flatMap(({ namespace, name, ports }) =>
    ports.flatMap(({ addresses, endpoints }) => {
      const ready = endpoints.filter(({ leftOut }) => leftOut === undefined)
      const [first] = addresses
      if (first === undefined || !first.endsWith('/TCP') || ready.length === 0) return []
      const [, text = '', port] = /^\[?(.*?)\]?:(\d+)\/TCP$/.exec(first) ?? []
      const ip = text as Ip
      return isSix(ip) === six ? [{ to: { name: `Service ${namespace}/${name}`, ip }, port: Number(port) }] : []
    }),
  )
  const own = uplinkOf(status, six)
  const node = own === undefined ? [] : [{ name: 'this node', ip: own, ns: 'host' as const }]
  const pod = pods.length === 0 ? [] : [pods[turn % pods.length] as From]
  return rotated(vips, turn)
    .slice(0, MOST_SERVICES)
    .flatMap(({ to, port }) => [
      ...node.map((from): Path => ({ kind: 'node → Service', from, to, bytes: 0, port })),
      ...pod.map((from): Path => ({ kind: 'pod → Service', from, to, bytes: 0, port })),
    ])
}

function sizes(kind: Kind, from: From, to: Place, mtu: number): Path[] {
  return [path(kind, from, to), path(kind, from, to, mtu)]
}

function path(kind: Kind, from: From, to: Place, bytes = 0): Path {
  return { kind, from, to, bytes }
}

function uplinkOf(status: PromisedState | undefined, six: boolean): Ip | undefined {
  const { v4, v6 } = status?.uplink?.tunnel ?? {}
  return (six ? v6 : v4) as Ip | undefined
}

/** The first address of a subnet, which the tunnel of its node has. Pure. */
export function firstOf(subnet: string): Ip {
  const { family, first } = split(parseCidr(subnet))
  return format({ family, bits: first })
}

function rotated<T>(all: readonly T[], turn: number): readonly T[] {
  const at = all.length === 0 ? 0 : turn % all.length
  return [...all.slice(at), ...all.slice(0, at)]
}
