// This folder runs BGP by a BIRD of its own. Begin here, with the file of `--bgp-config`. `acceptance.ts` says which
// configuration counts. `state.ts` makes the one of BIRD from it and from the leases, and `program.ts` brings it to BIRD.
import * as v from 'valibot'
import { isNode, LineCounter, parseDocument, parse as parseYaml, YAMLParseError } from 'yaml'
import { isSix, networkOf } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { bitsOf, type Cidr, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'
import { printable } from '../../lib/text/printable.ts'
import { field, read } from '../../lib/text/shape.ts'
import { labelsOf, type Selector, selectorOf } from '../cluster/reading.ts'
import { isNodeName } from '../lease/node-name.ts'

/** BGP as the user wants it: the checked content of the file. */
export interface BgpConfiguration {
  /** The AS number of the nodes. */
  readonly asn: number
  /** Each node has a session with each other node. */
  readonly mesh: boolean
  /** Who writes the routes to other nodes into the kernel: the agent, from the leases, or BIRD, from its sessions. */
  readonly programs: 'agent' | 'bird'
  /** Nodes that pass routes on, instead of the mesh: those of a name or address, and those that the selector selects. */
  readonly routeReflectors?: {
    readonly nodes: readonly string[]
    readonly nodeSelector?: Selector
    readonly clusterId: Ip
  }
  readonly peers: readonly OuterPeer[]
  readonly announce: {
    readonly nodeSubnet: boolean
    /** A Service's address is announced when it lies in one of these networks. */
    readonly clusterIPs: readonly Cidr[]
    readonly externalIPs: readonly Cidr[]
    readonly loadBalancerIPs: readonly Cidr[]
  }
  /** How long sessions may take to be back after a change of the file, in seconds. */
  readonly confirmSeconds: number
}

/** A router outside of the cluster. */
export interface OuterPeer {
  /** Its name in status and messages. Without one, its address. */
  readonly name?: string
  readonly address: Ip
  readonly asn: number
  /** The AS number of this session's own end. Absent: that of the nodes. */
  readonly localAsn?: number
  readonly port: number
  /** The first line of this file is the password of the session (TCP MD5, RFC 2385). */
  readonly passwordFile?: string
  /** The most routers on the way, when the peer is not on the link. */
  readonly multihop?: number
  /** The peer's packets carry the highest TTL (GTSM, RFC 5082). */
  readonly ttlSecurity: boolean
  readonly bfd: boolean
  /** How long the peer keeps the routes while BIRD is away, in seconds. 0 with BFD. */
  readonly gracefulRestart: number
  /** After this time without a message the session ends, in seconds. */
  readonly holdTime: number
  readonly import: readonly Accepted[]
  /** The most prefixes that are taken. Further ones are ignored. */
  readonly importLimit: number
  /** `65000:100`, or `65000:1:2` for a large community (RFC 8092). */
  readonly communities: readonly string[]
  /** How often the own AS number stands in the path once more. */
  readonly prepend: number
  /** The own address of the session. */
  readonly source?: Ip
  /** The peer may announce subnets of other nodes. Only where BIRD writes the routes to nodes. */
  readonly subnets: boolean
  /** The nodes that have this peer: those of a name or address, and those that the selector selects. Both absent: all. */
  readonly nodes?: readonly string[]
  readonly nodeSelector?: Selector
}

/** Prefixes that a peer may announce: a network, or also its parts up to a length. */
export interface Accepted {
  readonly network: Cidr
  readonly longest: number
}

// A file with a hundred peers takes a tenth of this.
const FILE_CHARACTERS = 262_144
const MOST_PEERS = 256
const MOST_SECONDS = 65_535
const USUAL = { asn: 64_512, port: 179, restartSeconds: 120, holdSeconds: 90, limit: 1000, confirmSeconds: 60 }

const asn = field.int(1, 2 ** 32 - 1)
// The store etcd knows nodes by their addresses alone.
const nodeNames = v.array(
  field.by((value) => {
    if (typeof value === 'string' && value.includes(':')) return parseIp(value)
    if (typeof value !== 'string' || !isNodeName(value))
      throw new ValueError(`${shown(value)}: want a node's name or address`)
    return value
  }),
)
// An unknown key would make the selector wider, so each key is read.
const labelSelector = v.object({
  matchLabels: v.optional(
    field.by((value) => {
      if (typeof value !== 'object' || Array.isArray(value))
        throw new ValueError(`${shown(value)}: want labels such as {"rack": "a"}`)
      return labelsOf(value, '')
    }),
    {},
  ),
  matchExpressions: v.optional(
    v.array(
      v.object({
        key: field.text,
        operator: field.word('In', 'NotIn', 'Exists', 'DoesNotExist'),
        values: v.optional(v.array(field.text), []),
      }),
    ),
    [],
  ),
})
const networks = v.optional(v.array(field.by((value) => networkOf(parseCidr(value)))), [])
const name = field.by((value) => {
  if (typeof value !== 'string' || !/^[\w.-]{1,64}$/.test(value))
    throw new ValueError(`${shown(value)}: want a name of letters, digits, "_", "." or "-", 64 at most`)
  return value
})
const path = field.by((value) => {
  if (typeof value !== 'string' || !/^\/[^\0]{0,4094}$/.test(value))
    throw new ValueError(`${shown(value)}: want the path of a file, which begins with "/"`)
  return value
})

const peer = v.object({
  name: v.exactOptional(name),
  address: field.by(neighbour),
  asn,
  localAsn: v.exactOptional(asn),
  port: v.optional(field.port, USUAL.port),
  passwordFile: v.exactOptional(path),
  multihop: v.exactOptional(field.int(2, 255)),
  ttlSecurity: v.optional(field.flag, false),
  bfd: v.optional(field.flag, false),
  gracefulRestart: v.exactOptional(field.int(1, 4095)),
  // RFC 4271: a hold time is zero or at least three seconds.
  holdTime: v.optional(field.int(3, MOST_SECONDS), USUAL.holdSeconds),
  import: v.optional(v.array(field.by(accepted)), []),
  importLimit: v.optional(field.int(1, 1_000_000), USUAL.limit),
  communities: v.optional(v.array(field.by(community)), []),
  prepend: v.optional(field.int(0, 16), 0),
  source: v.exactOptional(field.by(neighbour)),
  subnets: v.optional(field.flag, false),
  nodes: v.exactOptional(nodeNames),
  nodeSelector: v.exactOptional(labelSelector),
})

const shape = v.object({
  asn: v.optional(asn, USUAL.asn),
  mesh: v.optional(field.flag, true),
  programs: v.optional(field.word('agent', 'bird'), 'agent'),
  routeReflectors: v.exactOptional(
    v.object({
      nodes: v.optional(nodeNames, []),
      nodeSelector: v.exactOptional(labelSelector),
      clusterId: field.by((value) => {
        const ip = parseIp(value)
        if (isSix(ip) || bitsOf(ip).bits === 0n) throw new ValueError(`${shown(value)}: want a number such as 10.0.0.1`)
        return ip
      }),
    }),
  ),
  peers: v.optional(v.array(peer), []),
  announce: v.optional(
    v.object({
      nodeSubnet: v.optional(field.flag, true),
      clusterIPs: networks,
      externalIPs: networks,
      loadBalancerIPs: networks,
    }),
    {},
  ),
  confirmSeconds: v.optional(field.int(5, 600), USUAL.confirmSeconds),
})

/**
 * Reads the file of `--bgp-config`. Throws ValueError that names the file, the key, the value and what would be right.
 * An empty file has the defaults: a mesh of all nodes, which announces their subnets.
 */
export function parseBgp(file: string, text: string): BgpConfiguration {
  try {
    return checked(yaml(text))
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    throw new ValueError(`Cannot use ${file}: ${lineOf(text, cause.message)}${cause.message}`, { cause })
  }
}

// The line of the key that the sentence names, or of the nearest key above it. A file of one line needs none.
function lineOf(text: string, sentence: string): string {
  const [, key, unknown = key] = /^Cannot read ([\w.[\]]+)(?:: unknown key "([^"]+)")?/.exec(sentence) ?? []
  if (unknown === undefined || !text.trim().includes('\n')) return ''
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { lineCounter, logLevel: 'error' })
  const path = unknown.split(/[.[\]]+/).filter(Boolean)
  for (; path.length > 0; path.pop()) {
    const found = document.getIn(path, true)
    if (isNode(found) && found.range) return `line ${lineCounter.linePos(found.range[0]).line}: `
  }
  return ''
}

function checked(raw: unknown): BgpConfiguration {
  const { value, notes } = read(shape, raw ?? {})
  const unknown = notes.find((note) => note.startsWith('unknown key'))
  if (unknown !== undefined) throw new ValueError(`Cannot read it: ${unknown}`)
  const { routeReflectors, peers, programs } = value
  if (routeReflectors && !routeReflectors.nodeSelector && new Set(routeReflectors.nodes).size < 2)
    throw new ValueError(
      `Cannot read routeReflectors.nodes ${shown(routeReflectors.nodes)}: want two nodes at least, as one may die`,
    )
  if (peers.length > MOST_PEERS)
    throw new ValueError(`Cannot read peers: want ${MOST_PEERS} at most, not ${peers.length}`)
  for (const [i, one] of peers.entries()) refuse(one, peers.slice(0, i), `peers[${i}]`)
  const foreign = programs === 'agent' ? peers.findIndex(({ subnets }) => subnets) : -1
  if (foreign >= 0)
    throw new ValueError(
      `Cannot read peers[${foreign}].subnets true: want programs bird, else BIRD writes no such route`,
    )
  const { routeReflectors: _, ...rest } = value
  return {
    ...rest,
    ...(routeReflectors && { routeReflectors: selecting(routeReflectors, 'routeReflectors') }),
    peers: peers.map(({ gracefulRestart, ...one }, i) => ({
      ...selecting(one, `peers[${i}]`),
      gracefulRestart: one.bfd ? 0 : (gracefulRestart ?? USUAL.restartSeconds),
    })),
  }
}

function selecting<T extends { readonly nodeSelector?: unknown }>(
  { nodeSelector, ...rest }: T,
  at: string,
): Omit<T, 'nodeSelector'> & { readonly nodeSelector?: Selector } {
  if (nodeSelector === undefined) return rest
  try {
    return { ...rest, nodeSelector: selectorOf(nodeSelector, `${at}.nodeSelector`) }
  } catch (cause) {
    throw new ValueError(`Cannot read ${(cause as Error).message}`, { cause })
  }
}

type ReadPeer = v.InferOutput<typeof peer>

// What is wrong with a peer though each of its keys is right.
function refuse(one: ReadPeer, before: readonly ReadPeer[], at: string): void {
  const wrong = (key: string, value: unknown, want: string) => {
    throw new ValueError(`Cannot read ${at}.${key} ${shown(value)}: ${want}`)
  }
  // A node that has both would have two sessions with one neighbour. Whom selectors select is known later.
  const selected = (peer: ReadPeer) => peer.nodeSelector !== undefined
  const twin = before.find(
    (other) => other.address === one.address && !selected(other) && !selected(one) && meet(other.nodes, one.nodes),
  )
  if (twin) wrong('address', one.address, 'want each address once on a node')
  if (one.multihop !== undefined && one.ttlSecurity)
    wrong('ttlSecurity', true, 'want multihop or ttlSecurity, as ttlSecurity is for peers on the link')
  if (one.bfd && one.gracefulRestart !== undefined)
    wrong(
      'gracefulRestart',
      one.gracefulRestart,
      'want bfd or gracefulRestart, as BFD ends the session that would wait',
    )
  if (one.source !== undefined && isSix(one.source) !== isSix(one.address))
    wrong('source', one.source, `want an address of the family of ${one.address}`)
  const foreign = one.import.find(({ network }) => isSix(network) !== isSix(one.address))
  if (foreign) wrong('import', foreign.network, `want networks of the family of ${one.address}`)
}

function meet(some: readonly string[] | undefined, others: readonly string[] | undefined): boolean {
  return some === undefined || others === undefined || some.some((node) => others.includes(node))
}

function neighbour(value: unknown): Ip {
  const ip = parseIp(value)
  if (!isNeighbour(ip))
    throw new ValueError(`${shown(value)}: want a unicast address that is neither loopback nor link-local`)
  return ip
}

/** Whether an address can be that of a session: neither loopback nor link-local nor multicast. */
export function isNeighbour(ip: Ip): boolean {
  return !/^(0\.|127\.|169\.254\.|2(2[4-9]|[3-5]\d)\.|::1?$|fe[89ab]|ff)/.test(ip)
}

// `10.0.0.0/8 le 24`, as in the prefix lists of routers.
function accepted(value: unknown): Accepted {
  const want = 'want a network such as 0.0.0.0/0, or with its parts such as 10.0.0.0/8 le 24'
  const [, text, le] = (typeof value === 'string' && /^(\S+)(?: +le +(\d{1,3}))?$/.exec(value)) || []
  if (text === undefined) throw new ValueError(`${shown(value)}: ${want}`)
  const cidr = parseCidr(text)
  const network = networkOf(cidr)
  const { length, family } = split(cidr)
  const longest = le === undefined ? length : Number(le)
  if (network !== cidr) throw new ValueError(`${shown(value)}: want ${network}, whose host bits are zero`)
  if (longest < length || longest > (family === 4 ? 32 : 128)) throw new ValueError(`${shown(value)}: ${want}`)
  return { network, longest }
}

function community(value: unknown): string {
  const parts = typeof value === 'string' && /^\d{1,10}(:\d{1,10}){1,2}$/.test(value) ? value.split(':') : []
  const most = parts.length === 2 ? 65_535 : 2 ** 32 - 1
  if (parts.length === 0 || parts.some((part) => Number(part) > most))
    throw new ValueError(`${shown(value)}: want a community such as "64512:100", or a large one such as "64512:1:2"`)
  return parts.map(Number).join(':')
}

function yaml(text: string): unknown {
  if (text.length > FILE_CHARACTERS)
    throw new ValueError(`want a file of at most ${FILE_CHARACTERS} characters, not ${text.length}`)
  try {
    return parseYaml(text, { prettyErrors: true, logLevel: 'error' })
  } catch (cause) {
    if (cause instanceof RangeError || /call stack/.test((cause as Error).message))
      throw new ValueError('it is nested too deep', { cause })
    const place = cause instanceof YAMLParseError ? cause.linePos?.[0] : undefined
    const at = place ? `line ${place.line}, column ${place.col}: ` : ''
    const [first = ''] = (cause as Error).message.split('\n', 1)
    // The parser advises its caller.
    const said = printable(first.replace(/ at line \d+, column \d+:?$|; please use .*$/, '').slice(0, 200))
    throw new ValueError(`${at}${said}`, { cause })
  }
}
