// Runs on the full node of the bench: an API server with 10,000 objects, and the connections that the kernel tracks.
// Commands come on stdin, a line of JSON each.
import { createInterface } from 'node:readline'
import { connectionCount, connectionPieces, type Sought } from '../../lib/os/conntrack.ts'
import { type Attribute, request } from '../../lib/os/rtnetlink.ts'
import { Connected } from '../../lib/os/sockets.ts'
import { type Kind, serveObjects } from './object-server.ts'

/** What the node does at a command. */
export type Command =
  /** Makes the kernel track connections. Gives how many it tracks. */
  | { readonly what: 'fill'; readonly only?: 'to pods' }
  /** A Service has the endpoints from this one on. Its first one is 0. */
  | { readonly what: 'endpoints'; readonly service: number; readonly from: number }
  /** A policy of the pods of this node has these ports. */
  | { readonly what: 'policy'; readonly name: 'all' | 'five'; readonly ports: readonly number[] }
  | { readonly what: 'pod'; readonly name: string; readonly type: 'ADDED' | 'DELETED' }
  /** Gives how many connections match. */
  | { readonly what: 'tracked'; readonly sought: Sought }

const PORT = 6443
/** The numbers of objects: 10,000 in all. Every fortieth Service is one of UDP. */
const [SERVICES, EACH, UDP_EVERY, PODS, LOCAL, NAMESPACES, POLICIES] = [4000, 10, 40, 1500, 100, 20, 480]
/**
 * The connections, 500,000 in all: to each Service of UDP and of TCP, and to each pod of this node on ports that
 * policies allow. The rest is of nobody.
 */
const [UDP_EACH, TCP_EACH, TO_POD, TO_CLOSING, TO_FIVE, ALL] = [2400, 50, 500, 50, 100, 500_000]
const [TCP, UDP] = [6, 17]

const dotted = (first: number, n: number) => `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`
const vipOf = (n: number) => dotted(11, n + 1)
const endpointOf = (n: number, i: number) => dotted(10, n * EACH + i)
const podOf = (n: number) => `10.244.1.${n + 2}`
const isUdp = (n: number) => n % UDP_EVERY === 0
const portOf = (n: number) => (isUdp(n) ? 53 : 80)
let version = 1
const meta = (namespace: string, name: string, labels: object = {}) => ({
  namespace,
  name,
  uid: `uid-${namespace}-${name}`,
  labels,
  resourceVersion: String(++version),
  creationTimestamp: '2026-01-01T00:00:00Z',
})
const indexes = (count: number) => Array.from({ length: count }, (_, i) => i)

function service(n: number): object {
  const [clusterIP, protocol] = [vipOf(n), isUdp(n) ? 'UDP' : 'TCP']
  const ports = [{ protocol, port: portOf(n), targetPort: 8080 }]
  return {
    metadata: meta('x', `s${n}`),
    spec: {
      type: 'ClusterIP',
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      ports,
      sessionAffinity: 'None',
      internalTrafficPolicy: 'Cluster',
    },
    status: { loadBalancer: {} },
  }
}

function slice(n: number, from: number): object {
  const conditions = { ready: true, serving: true, terminating: false }
  const endpoints = indexes(EACH)
    .slice(from)
    .map((i) => ({ addresses: [endpointOf(n, i)], conditions, nodeName: `n${i + 2}` }))
  return {
    metadata: meta('x', `s${n}-1`, { 'kubernetes.io/service-name': `s${n}` }),
    addressType: 'IPv4',
    ports: [{ name: '', protocol: isUdp(n) ? 'UDP' : 'TCP', port: 8080 }],
    endpoints,
  }
}

function pod(namespace: string, name: string, app: number, nodeName: string, ip?: string): object {
  return {
    metadata: meta(namespace, name, { app: `a${app % 20}` }),
    spec: { nodeName, containers: [] },
    status: { phase: 'Running', podIPs: ip === undefined ? [] : [{ ip }] },
  }
}

// The pods of this node are in the first namespace. The policy `all` selects all of them, `five` those with one label.
function portsPolicy(name: 'all' | 'five', ports: readonly number[]): object {
  const podSelector = name === 'all' ? {} : { matchLabels: { app: 'a0' } }
  return {
    metadata: meta('x', name),
    spec: {
      podSelector,
      policyTypes: ['Ingress'],
      ingress: [{ from: [{ ipBlock: { cidr: '172.16.0.0/12' } }], ports: ports.map((port) => ({ port })) }],
    },
  }
}

function peersPolicy(n: number): object {
  const app = { matchLabels: { app: `a${n % 20}` } }
  return {
    metadata: meta(n < 18 ? 'x' : `x${1 + (n % (NAMESPACES - 1))}`, `p${n}`),
    spec: {
      podSelector: app,
      policyTypes: ['Ingress'],
      ingress: [{ from: [{ namespaceSelector: {}, podSelector: app }], ports: [{ port: 443 }] }],
    },
  }
}

const [SLICES_PATH, PODS_PATH, POLICIES_PATH] = [
  '/apis/discovery.k8s.io/v1/endpointslices',
  '/api/v1/pods',
  '/apis/networking.k8s.io/v1/networkpolicies',
] as const
const KINDS: Readonly<Record<string, Kind>> = {
  '/api/v1/services': { kind: 'Service', apiVersion: 'v1', items: indexes(SERVICES).map(service) },
  [SLICES_PATH]: {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    items: indexes(SERVICES).map((n) => slice(n, 0)),
  },
  [PODS_PATH]: {
    kind: 'Pod',
    apiVersion: 'v1',
    items: indexes(PODS).map((n) =>
      n < LOCAL
        ? pod('x', `l${n}`, n, 'n1', podOf(n))
        : pod(`x${1 + (n % (NAMESPACES - 1))}`, `r${n}`, n, `n${2 + (n % 50)}`, dotted(10, 0x640000 + n)),
    ),
  },
  '/api/v1/namespaces': {
    kind: 'Namespace',
    apiVersion: 'v1',
    items: indexes(NAMESPACES).map((n) => ({
      metadata: { ...meta('', n === 0 ? 'x' : `x${n}`), namespace: undefined },
    })),
  },
  [POLICIES_PATH]: {
    kind: 'NetworkPolicy',
    apiVersion: 'networking.k8s.io/v1',
    items: [portsPolicy('all', [8080, 9090]), portsPolicy('five', [7070]), ...indexes(POLICIES - 2).map(peersPolicy)],
  },
  '/api/v1/nodes': {
    kind: 'Node',
    apiVersion: 'v1',
    items: [
      {
        metadata: { ...meta('', 'n1'), namespace: undefined },
        spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.0/24'] },
        status: { addresses: [{ type: 'InternalIP', address: '192.168.77.1' }] },
      },
    ],
  },
  '/apis/networking.k8s.io/v1/servicecidrs': { kind: 'ServiceCIDR', apiVersion: 'networking.k8s.io/v1', items: [] },
}

// linux/netfilter/nfnetlink_conntrack.h
const [NEW, NLM_F_CREATE, NLM_F_ACK, NESTED] = [1 << 8, 0x400, 4, 0x8000]
const [TUPLE_ORIG, TUPLE_REPLY, STATUS, PROTOINFO, TIMEOUT] = [1, 2, 3, 4, 7]
const [TUPLE_IP, TUPLE_PROTO, PROTOINFO_TCP, TCP_STATE, ESTABLISHED] = [1, 2, 1, 1, 3]
const [V4_SRC, V4_DST, PROTO_NUM, PROTO_SPORT, PROTO_DPORT] = [1, 2, 1, 2, 3]
/** Seen in both directions, assured and confirmed. An assured connection is not dropped early. */
const [SEEN, DAY_S, AF_INET] = [0xe, 86_400, 2]
/** The messages of one send. */
const AT_ONCE = 200

type End = readonly [ip: string, port: number]

const nested = (type: number, inner: readonly Attribute[]): Attribute => [
  type | NESTED,
  request(0, new Uint8Array(0), 0, inner).subarray(16),
]
const big = (word: number) => Uint8Array.of(word >>> 24, (word >> 16) & 255, (word >> 8) & 255, word & 255)
const half = (word: number) => Uint8Array.of(word >> 8, word & 255)

function tuple(type: number, protocol: number, [src, sport]: End, [dst, dport]: End): Attribute {
  const bytes = (ip: string) => Uint8Array.from(ip.split('.'), Number)
  return nested(type, [
    nested(TUPLE_IP, [
      [V4_SRC, bytes(src)],
      [V4_DST, bytes(dst)],
    ]),
    nested(TUPLE_PROTO, [
      [PROTO_NUM, Uint8Array.of(protocol)],
      [PROTO_SPORT, half(sport)],
      [PROTO_DPORT, half(dport)],
    ]),
  ])
}

function message(protocol: number, client: End, asked: End, answers: End): Uint8Array {
  return request(NEW, Uint8Array.of(AF_INET, 0, 0, 0), NLM_F_CREATE, [
    tuple(TUPLE_ORIG, protocol, client, asked),
    tuple(TUPLE_REPLY, protocol, answers, client),
    [STATUS, big(SEEN)],
    ...(protocol === TCP
      ? [nested(PROTOINFO, [nested(PROTOINFO_TCP, [[TCP_STATE, Uint8Array.of(ESTABLISHED)]])])]
      : []),
    [TIMEOUT, big(DAY_S)],
  ])
}

// The pods of this node are the clients of all Services, and their servers have clients of elsewhere.
function* toPods(): Generator<Uint8Array> {
  for (let n = 0; n < LOCAL; n++)
    for (const [port, count] of [
      [8080, TO_POD],
      [9090, TO_CLOSING],
      [7070, n % 20 === 0 ? TO_FIVE : 0],
    ] as const)
      for (let i = 0; i < count; i++)
        yield message(TCP, [dotted(172, 0x100000 + i), 20_000 + n], [podOf(n), port], [podOf(n), port])
}

function* all(): Generator<Uint8Array> {
  yield* toPods()
  let count = LOCAL * (TO_POD + TO_CLOSING) + (LOCAL / 20) * TO_FIVE
  for (let n = 0; n < SERVICES; n++)
    for (let i = 0; i < (isUdp(n) ? UDP_EACH : TCP_EACH); i++, count++)
      yield message(
        isUdp(n) ? UDP : TCP,
        [podOf((n + i) % LOCAL), 10_000 + i],
        [vipOf(n), portOf(n)],
        [endpointOf(n, i % EACH), 8080],
      )
  for (; count < ALL; count++)
    yield message(TCP, [dotted(172, 0x110000 + count), 30_000], ['192.168.77.1', 22], ['192.168.77.1', 22])
}

function fill(messages: Iterable<Uint8Array>): void {
  const socket = new Connected(12)
  const send = (some: readonly Uint8Array[]) => {
    if (some.length === 0) return
    // The last request asks for an acknowledgement. The kernel reports an error of the others anyway.
    const last = Buffer.from(some.at(-1) as Uint8Array)
    last.writeUInt16LE(last.readUInt16LE(6) | NLM_F_ACK, 6)
    const { errno } = socket.ask(Buffer.concat([...some.slice(0, -1), last]))
    if (errno !== 0) throw new Error(`the kernel takes no connections: errno ${errno}`)
  }
  let some: Uint8Array[] = []
  for (const one of messages) {
    if (some.push(one) < AT_ONCE) continue
    send(some)
    some = []
  }
  send(some)
  socket.close()
}

function obey(command: Command): number {
  if (command.what === 'fill') fill(command.only ? toPods() : all())
  else if (command.what === 'endpoints') api.announce('MODIFIED', SLICES_PATH, slice(command.service, command.from))
  else if (command.what === 'policy') api.announce('MODIFIED', POLICIES_PATH, portsPolicy(command.name, command.ports))
  else if (command.what === 'pod') api.announce(command.type, PODS_PATH, pod('x', command.name, 1, 'n1'))
  else return [...connectionPieces(command.sought)].reduce((sum, piece) => sum + piece.length, 0)
  return connectionCount()
}

const api = serveObjects(PORT, KINDS, () => version)
process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${obey(JSON.parse(line) as Command)}\n`)
