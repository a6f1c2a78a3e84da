import { isSix } from '../text/cidr.ts'
import { bytesOf, type Ip } from '../text/ip.ts'
import { addressOf } from './link-addresses.ts'
import { log } from './log.ts'
import { NoAnswer } from './netlink-answer.ts'
import { attributesOf } from './netlink-attributes.ts'
import { readText } from './reading.ts'
import { type Attribute, NLM_F_DUMP, request } from './rtnetlink.ts'
import { Connected } from './sockets.ts'

// The connections that the kernel tracks in this thread's namespace, by nfnetlink_conntrack and without a subprocess.
// The tool conntrack lists the whole table as text, which takes seconds on a busy node.

/** One direction of a connection. For ICMP `sport` is the id, and `dport` the type and the code (type * 256 + code). */
export interface Tuple {
  readonly src: Ip
  readonly dst: Ip
  /** The number of the protocol: 6 TCP, 17 UDP, 132 SCTP, 1 and 58 ICMP. */
  readonly protocol: number
  readonly sport: number
  readonly dport: number
}
/**
 * A connection. `back` has the addresses of the answers: they come from where the connection goes after translation.
 */
export interface Connection {
  readonly there: Tuple
  readonly back: Tuple
  /** Its mark (`ct mark` of nft). */
  readonly mark: number
  /** Its packets pass by the rules (`flow add` of nft). */
  readonly isOffloaded: boolean
  /** What names it in a request to the kernel. */
  readonly name: readonly Attribute[]
}
/** What connections to look for. The kernel sends only those (Linux 5.8). */
export interface Sought {
  /** Without it, the connections of both families. */
  readonly family?: 4 | 6
  readonly protocol?: number
  /** The address, or the port, that the first packet was sent to. */
  readonly dst?: Ip
  readonly dport?: number
  /** The address that the first packet came from. */
  readonly src?: Ip
  /** The address that the answers come from. */
  readonly from?: Ip
  /** A bit of the mark that is set. */
  readonly bit?: number
}

const NETLINK_NETFILTER = 12
// linux/netfilter/nfnetlink_conntrack.h. The subsystem is in the upper byte of a message's type.
const SUBSYSTEM = 1 << 8
const [NEW, GET, DELETE] = [0, 1, 2]
const [TUPLE_ORIG, TUPLE_REPLY, STATUS, MARK, ID, ZONE, MARK_MASK, FILTER] = [1, 2, 3, 8, 12, 18, 21, 25]
const [TUPLE_IP, TUPLE_PROTO] = [1, 2]
const [V4_SRC, V4_DST, V6_SRC, V6_DST] = [1, 2, 3, 4]
const [PROTO_NUM, PROTO_SPORT, PROTO_DPORT, ICMP_ID, ICMP_TYPE, ICMP_CODE, ICMP6_ID, ICMP6_TYPE, ICMP6_CODE] = [
  1, 2, 3, 4, 5, 6, 7, 8, 9,
]
const [FILTER_ORIG, FILTER_REPLY] = [1, 2]
// net/netfilter/nf_internals.h: which parts of a tuple the kernel compares.
const [BY_SRC, BY_DST, BY_PROTO, BY_DPORT] = [1, 2, 8, 32]
const [NESTED, NLM_F_ACK, HEADERS] = [0x8000, 4, 20]
// linux/netfilter/nf_conntrack_common.h: IPS_OFFLOAD.
const OFFLOADED = 1 << 14
// The connection has ended by itself.
const ENOENT = 2
const [AF_UNSPEC, FAMILIES] = [0, { 4: 2, 6: 10 }] as const

/** The number of connections that the kernel tracks. 0 where it tracks none, because the module is not loaded. */
export function connectionCount(): number {
  return Number(readText('/proc/sys/net/netfilter/nf_conntrack_count') ?? 0)
}

/** The connections that match. Throws NoAnswer. */
export function connections(sought: Sought): Connection[] {
  return [...connectionPieces(sought)].flat()
}

/** The same, piece by piece: there may be hundreds of thousands. The caller may do other work in between. */
export function* connectionPieces(sought: Sought): Generator<Connection[]> {
  const socket = new Connected(NETLINK_NETFILTER)
  try {
    for (const piece of socket.pieces(request(SUBSYSTEM | GET, header(sought.family), NLM_F_DUMP, filterOf(sought)))) {
      yield piece.flatMap((message) => {
        const found = connectionOf(message)
        return found && isSought(found, sought) ? [found] : []
      })
    }
  } finally {
    socket.close()
  }
}

/**
 * Counts the connections whose packets pass by the rules, piece by piece like `connectionPieces`: gives the number of
 * each piece.
 */
export function* offloadedPieces(): Generator<number> {
  const socket = new Connected(NETLINK_NETFILTER)
  try {
    for (const piece of socket.pieces(request(SUBSYSTEM | GET, header(undefined), NLM_F_DUMP, [])))
      yield piece.filter((message) => {
        const status = attributesOf(message, HEADERS).get(STATUS)
        return status !== undefined && (status.getUint32(0) & OFFLOADED) !== 0
      }).length
  } finally {
    socket.close()
  }
}

/** Makes the kernel forget these connections, on one socket. Gives how many were there. Throws NoAnswer. */
export function forget(all: readonly Connection[]): number {
  return change(all, DELETE, [])
}

/**
 * Sets or clears a bit of the marks of these connections, on one socket. Their times stay as they are. Gives how many
 * were there. Throws NoAnswer.
 */
export function setBit(all: readonly Connection[], bit: number, isSet: boolean): number {
  return change(all, NEW, [
    [MARK, bigEndian(isSet ? bit : 0)],
    [MARK_MASK, bigEndian(bit)],
  ])
}

function change(all: readonly Connection[], type: number, more: readonly Attribute[]): number {
  if (all.length === 0) return 0
  const socket = new Connected(NETLINK_NETFILTER)
  try {
    let count = 0
    for (const { there, name } of all) {
      const asked = request(SUBSYSTEM | type, header(isSix(there.src) ? 6 : 4), NLM_F_ACK, [...name, ...more])
      const { errno } = socket.ask(asked)
      if (errno === 0) count++
      else if (errno !== ENOENT) throw new NoAnswer(NETLINK_NETFILTER, asked, errno)
    }
    return count
  } finally {
    socket.close()
  }
}

/**
 * From this number on the kernel is asked for those of an address alone. It walks its whole table for each question,
 * however few it sends.
 */
export const MANY = 200

/**
 * The connections from and to some addresses: those that they began, and those that they answer, by themselves or for a
 * Service or a host port. Throws as `connections`.
 */
export function connectionsOf(ips: readonly Ip[]): Connection[] {
  if (ips.length > 0 && connectionCount() < MANY)
    return connections({}).filter(({ there, back }) => ips.includes(there.src) || ips.includes(back.src))
  return ips.flatMap(soughtOf)
}

function soughtOf(ip: Ip): Connection[] {
  const family = isSix(ip) ? 6 : 4
  // The kernel does not filter by IPv6 addresses, so one list is enough.
  if (family === 6) return connections({ family }).filter(({ there, back }) => there.src === ip || back.src === ip)
  const [began, answered] = [connections({ family, src: ip }), connections({ family, from: ip })]
  return [...began, ...answered.filter(({ there }) => there.src !== ip)]
}

function isSought({ there, back, mark }: Connection, { protocol, dst, dport, src, from, bit }: Sought): boolean {
  const is = <T>(wanted: T | undefined, value: T) => wanted === undefined || wanted === value
  return (
    is(protocol, there.protocol) &&
    is(dst, there.dst) &&
    is(dport, there.dport) &&
    is(src, there.src) &&
    is(from, back.src) &&
    (bit === undefined || (mark & bit) !== 0)
  )
}

// The kernel before 5.8 skips the filter and sends all. By an IPv6 address it sends all but those that match (seen in
// 6.18: ctnetlink_filter_match_tuple takes ipv6_addr_cmp the wrong way round). So there it is not asked for addresses.
function filterOf(sought: Sought): Attribute[] {
  const { family, protocol, dport, bit } = sought
  if (bit !== undefined) return [[MARK, bigEndian(bit)] as const, [MARK_MASK, bigEndian(bit)] as const]
  if (family === undefined) return []
  const { dst, src, from }: Pick<Sought, 'dst' | 'src' | 'from'> = family === 4 ? sought : {}
  const there =
    (src ? BY_SRC : 0) |
    (dst ? BY_DST : 0) |
    (protocol === undefined ? 0 : BY_PROTO) |
    (dport === undefined || protocol === undefined ? 0 : BY_DPORT)
  const back = from ? BY_SRC : 0
  if (there === 0 && back === 0) return []
  const ip = (one?: Ip, other?: Ip) =>
    nested(TUPLE_IP, [
      ...(one ? [[family === 4 ? V4_SRC : V6_SRC, bytesOf(one)] as const] : []),
      ...(other ? [[family === 4 ? V4_DST : V6_DST, bytesOf(other)] as const] : []),
    ])
  const port = dport === undefined ? [] : [[PROTO_DPORT, Uint8Array.of(dport >> 8, dport & 0xff)] as const]
  const proto = protocol === undefined ? [] : [nested(TUPLE_PROTO, [[PROTO_NUM, Uint8Array.of(protocol)], ...port])]
  return [
    ...(there ? [nested(TUPLE_ORIG, [...(src || dst ? [ip(src, dst)] : []), ...proto])] : []),
    ...(back ? [nested(TUPLE_REPLY, [ip(from)])] : []),
    nested(FILTER, [
      [FILTER_ORIG, wordOf(there)],
      [FILTER_REPLY, wordOf(back)],
    ]),
  ]
}

function connectionOf(message: DataView): Connection | undefined {
  const attributes = attributesOf(message, HEADERS)
  const [orig, reply] = [attributes.get(TUPLE_ORIG), attributes.get(TUPLE_REPLY)]
  const [there, back] = [orig && tupleOf(orig), reply && tupleOf(reply)]
  if (!orig || !there || !back) return undefined
  const copied = (type: number): Attribute[] => {
    const value = attributes.get(type)
    return value ? [[type, bytesIn(value)]] : []
  }
  const mark = attributes.get(MARK)?.getUint32(0) ?? 0
  const isOffloaded = ((attributes.get(STATUS)?.getUint32(0) ?? 0) & OFFLOADED) !== 0
  return {
    there,
    back,
    mark,
    isOffloaded,
    name: [[TUPLE_ORIG | NESTED, bytesIn(orig)], ...copied(ID), ...copied(ZONE)],
  }
}

function tupleOf(attribute: DataView): Tuple | undefined {
  const parts = attributesOf(attribute)
  const [ip, proto] = [parts.get(TUPLE_IP), parts.get(TUPLE_PROTO)]
  if (!ip || !proto) return undefined
  const [addresses, numbers] = [attributesOf(ip), attributesOf(proto)]
  const src = addressOf(addresses.get(V4_SRC) ?? addresses.get(V6_SRC))
  const dst = addressOf(addresses.get(V4_DST) ?? addresses.get(V6_DST))
  const port = (type: number) => (numbers.get(type)?.byteLength === 2 ? numbers.get(type)?.getUint16(0) : undefined)
  const byte = (type: number, other: number) => (numbers.get(type) ?? numbers.get(other))?.getUint8(0) ?? 0
  const protocol = numbers.get(PROTO_NUM)?.getUint8(0)
  if (src === undefined || dst === undefined || protocol === undefined) return undefined
  const sport = port(PROTO_SPORT) ?? port(ICMP_ID) ?? port(ICMP6_ID) ?? 0
  return {
    src,
    dst,
    protocol,
    sport,
    dport: port(PROTO_DPORT) ?? byte(ICMP_TYPE, ICMP6_TYPE) * 256 + byte(ICMP_CODE, ICMP6_CODE),
  }
}

// struct nfgenmsg: the family, the version, and a resource id.
function header(family: Sought['family']): Uint8Array {
  return Uint8Array.of(family === undefined ? AF_UNSPEC : FAMILIES[family], 0, 0, 0)
}

function nested(type: number, inner: readonly Attribute[]): Attribute {
  return [type | NESTED, request(0, new Uint8Array(0), 0, inner).subarray(16)]
}

function wordOf(word: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(word).buffer)
}

function bigEndian(word: number): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(4))
  bytes.setUint32(0, word)
  return new Uint8Array(bytes.buffer)
}

function bytesIn(view: DataView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
}

/**
 * Makes the kernel forget every connection of these addresses: a pod begins without connections of its address
 * (docs/decisions/0032). Costs one look at a file on a node that tracks none. Never throws: a kernel that refuses
 * cannot hold up a pod.
 */
export function forgetAddresses(ips: readonly Ip[]): void {
  try {
    if (connectionCount() === 0) return
    const left = ips.filter((ip) => isSix(ip) || !forgetBySource(ip))
    forget(connectionsOf(left))
  } catch (cause) {
    const fact = `Cannot end the connections of ${ips.join(', ')}; those of a former owner may go on`
    log(`plumb: ${fact}: ${(cause as Error).message}`)
  }
}

/**
 * Makes the kernel forget the connections that an IPv4 address began, and those that it answers, without a list of
 * them. False when this kernel cannot, as Linux 6.1: it takes the tuple for the whole name of one connection, and
 * refuses it as incomplete.
 */
function forgetBySource(ip: Ip): boolean {
  const socket = new Connected(NETLINK_NETFILTER)
  try {
    return [{ src: ip }, { from: ip }].every((sought) => {
      const filter = filterOf({ family: 4, ...sought })
      return socket.ask(request(SUBSYSTEM | DELETE, header(4), NLM_F_ACK, filter)).errno === 0
    })
  } finally {
    socket.close()
  }
}
