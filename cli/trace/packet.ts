import { checksum } from '../../lib/os/checksum.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { bytesOf, format, type Ip } from '../../lib/text/ip.ts'

/** The protocols that a trace sends. */
export type Protocol = 'TCP' | 'UDP' | 'ICMP'
/**
 * The packet of a trace. `token` is a random number that only this packet has, and that no translation of addresses
 * changes: the sequence number of TCP, the first data of UDP and ICMP.
 */
export interface Probe {
  readonly protocol: Protocol
  readonly source: Ip
  readonly destination: Ip
  /** 0 for ICMP. */
  readonly port: number
  readonly sourcePort: number
  readonly token: number
  /** Its bytes from the IP header on, with zeros at its end. No router may divide it then. */
  readonly size?: number
  /** The packet is a program's. The trace does not send it. */
  readonly real?: Real
}
/** What is known of a packet of a program. */
export interface Real {
  /** Where the token is, in bytes from the transport header on. 0: the source port is the token. */
  readonly tokenAt: number
  /** The identification of IPv4, which ICMP errors quote. */
  readonly number: number
  /** From the IP header on. */
  readonly bytes: number
  /** It begins a connection of TCP. */
  readonly isFirst: boolean
}
/** Packets of programs to wait for. */
export interface AwaitedPackets {
  /** Undefined for TCP, UDP and echo requests. */
  readonly protocol?: Protocol
  readonly source: Ip
  readonly destination: Ip
  /** Undefined for all ports, and for ICMP. */
  readonly port?: number
  /** Where a Service may lead them. */
  readonly endpoints: readonly { readonly ip: Ip; readonly port: number }[]
}
/** The ends of a packet of any protocol of IP. */
export interface Flow {
  readonly source: Ip
  readonly destination: Ip
  /** `TCP`, `UDP`, `ICMP`, or such as `protocol 132`. */
  readonly protocol: string
  /** Of the destination. 0 for ICMP and others. */
  readonly port: number
}
/** What the headers of a traced packet say. */
export interface Headers {
  readonly source: Ip
  readonly destination: Ip
  /** 0 for ICMP. */
  readonly port: number
  readonly sourcePort: number
  /** `there`: the packet that was sent. `back`: the answer. */
  readonly direction: 'there' | 'back'
  /** What the answer is. */
  readonly answer?: Answer
}
/** `open`: a program takes the packets. `closed`: the receiver, or a rule, says that none does. `error`: by ICMP. */
export type Answer = 'open' | 'closed' | 'error'

const NUMBERS = { TCP: { 4: 6, 6: 6 }, UDP: { 4: 17, 6: 17 }, ICMP: { 4: 1, 6: 58 } } as const
const WORDS = { TCP: { 4: 'tcp', 6: 'tcp' }, UDP: { 4: 'udp', 6: 'udp' }, ICMP: { 4: 'icmp', 6: 'icmpv6' } } as const
/** The types of echo request and reply, and those of ICMP errors (RFC 792, RFC 4443). */
const ECHO = { 4: { request: 8, reply: 0, errors: [3, 11] }, 6: { request: 128, reply: 129, errors: [1, 2, 3] } }
const HEADER = { 4: 20, 6: 40 } as const
/** The bytes from the transport header to the token. UDP and ICMP have headers of 8 bytes. */
const TOKEN_AT = { TCP: 4, UDP: 8, ICMP: 8 } as const
/** VXLAN: its own header with that of UDP, and the header of Ethernet (RFC 7348). */
const [VXLAN_HEADERS, ETHERNET_HEADER, ICMP_HEADER, HOPS] = [16, 14, 8, 64]
const [SYN, RST, ACK] = [2, 4, 16]
/** The flag of IPv4 (RFC 791, 3.1). */
const DONT_FRAGMENT = 0x4000
/** The bytes from the header of ICMP to the identifier of an echo request. */
const ICMP_NUMBERS = 4
/** How many packets of programs, and how many answers, the kernel tells of at each hook. */
const [FEW, MANY] = ['limit rate 20/second burst 20 packets', 'limit rate 100/second burst 100 packets'] as const

/** The family of a probe. */
export function familyOf({ destination }: Pick<Probe, 'destination'>): 4 | 6 {
  return isSix(destination) ? 6 : 4
}

/** The packet from its IP header on, with its checksums. Pure. */
export function packetOf(probe: Probe): Uint8Array {
  const family = familyOf(probe)
  const segment = segmentOf(probe, family, (probe.size ?? 0) - HEADER[family])
  const [source, destination] = [bytesOf(probe.source), bytesOf(probe.destination)]
  const number = NUMBERS[probe.protocol][family]
  const packet = new Uint8Array(HEADER[family] + segment.length)
  const view = new DataView(packet.buffer)
  if (family === 6) {
    view.setUint32(0, (6 << 28) | (probe.token & 0xfffff))
    view.setUint16(4, segment.length)
    packet.set([number, HOPS], 6)
  } else {
    packet[0] = 0x45
    view.setUint16(2, packet.length)
    view.setUint16(4, probe.token & 0xffff)
    if (probe.size !== undefined) view.setUint16(6, DONT_FRAGMENT)
    packet.set([HOPS, number], 8)
  }
  packet.set(source, family === 6 ? 8 : 12)
  packet.set(destination, family === 6 ? 24 : 16)
  if (family === 4) view.setUint16(10, checksum([packet.subarray(0, HEADER[4])]))
  const pseudo = new Uint8Array([...source, ...destination, 0, 0, segment.length >> 8, segment.length, 0, 0, 0, number])
  const covered = probe.protocol === 'ICMP' && family === 4 ? [segment] : [pseudo, segment]
  const place = { TCP: 16, UDP: 6, ICMP: 2 }[probe.protocol]
  // A checksum of 0 means none in UDP (RFC 768).
  new DataView(segment.buffer).setUint16(place, checksum(covered) || 0xffff)
  packet.set(segment, HEADER[family])
  return packet
}

/** The sizes of the packet from the IP header on: its own, and inside VXLAN over IPv4 and IPv6. Pure. */
export function sizesOf(probe: Probe): number[] {
  const own = probe.real?.bytes ?? packetOf(probe).length
  const carried = own + VXLAN_HEADERS + ETHERNET_HEADER
  return [own, carried + HEADER[4], carried + HEADER[6]]
}

// TCP: a SYN. UDP: a datagram of 8 bytes. ICMP: an echo request.
function segmentOf(
  { protocol, port, sourcePort, token }: Probe,
  family: 4 | 6,
  atLeast: number,
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(Math.max(protocol === 'TCP' ? 20 : 16, atLeast))
  const view = new DataView(bytes.buffer)
  if (protocol === 'ICMP') {
    view.setUint8(0, ECHO[family].request)
    view.setUint16(4, sourcePort)
    view.setUint16(6, 1)
  } else {
    view.setUint16(0, sourcePort)
    view.setUint16(2, port)
  }
  if (protocol === 'UDP') view.setUint16(4, bytes.length)
  if (protocol === 'TCP') view.setUint16(12, (5 << 12) | SYN)
  if (protocol === 'TCP') view.setUint16(14, 64_240)
  view.setUint32(TOKEN_AT[protocol], token)
  return bytes
}

/** The conditions of nft that select the packet, its answers, and ICMP errors about it. Pure. */
export function conditionsOf(probe: Probe): string[] {
  const { protocol, token, sourcePort, source } = probe
  const family = familyOf(probe)
  const at = (bytes: number, value: number) => `@th,${8 * bytes},32 ${value}`
  const word = WORDS[protocol][family]
  const token_ = TOKEN_AT[protocol]
  const error = `meta l4proto ${WORDS.ICMP[family]} ${at(ICMP_HEADER + HEADER[family] + token_, token)}`
  const own = `meta l4proto ${word} ${at(token_, token)}`
  if (protocol === 'ICMP') return [own, error]
  if (protocol === 'TCP') return [own, error, ...confirmations(probe).map((one) => `meta l4proto tcp ${at(8, one)}`)]
  return [own, error, `${family === 6 ? 'ip6' : 'ip'} daddr ${source} udp dport ${sourcePort}`]
}

/** The protocols of the packets to wait for. */
function protocolsOf({ protocol }: Pick<AwaitedPackets, 'protocol'>): readonly Protocol[] {
  return protocol === undefined ? ['TCP', 'UDP', 'ICMP'] : [protocol]
}

/**
 * The conditions of nft that select packets of programs, their answers, and ICMP errors about them. They hold from a
 * second since 1970 on, so that all namespaces select the same packets. `isTarget`: in the namespace of the receiver,
 * where the source address may be another one. Pure.
 */
export function wishConditions(wish: AwaitedPackets, from: number, isTarget: boolean): string[] {
  const { source, destination, port, endpoints } = wish
  const family = familyOf(wish)
  const [ip, icmp] = [family === 6 ? 'ip6' : 'ip', WORDS.ICMP[family]]
  const ends = [...new Set([destination, ...endpoints.map((one) => one.ip)])].join(', ')
  const ports = port === undefined ? '' : [...new Set([port, ...endpoints.map((one) => one.port)])].join(', ')
  const [there, back] = isTarget
    ? [`${ip} daddr { ${ends} }`, `${ip} saddr { ${ends} }`]
    : [`${ip} saddr ${source} ${ip} daddr { ${ends} }`, `${ip} saddr { ${ends} } ${ip} daddr ${source}`]
  const errors = family === 6 ? 'packet-too-big, ' : ''
  const own = protocolsOf(wish).flatMap((protocol) => {
    if (protocol === 'ICMP')
      return [`${there} ${icmp} type echo-request ${FEW}`, `${back} ${icmp} type echo-reply ${MANY}`]
    const word = WORDS[protocol][family]
    const at = (side: string) => (ports === '' ? `meta l4proto ${word}` : `${word} ${side} { ${ports} }`)
    // What begins or ends a connection, or has the last data of a message. Mere confirmations get no answer.
    const asking = protocol === 'TCP' ? ' tcp flags & (syn | fin | psh) != 0x0 tcp flags & rst == 0x0' : ''
    return [`${there} ${at('dport')}${asking} ${FEW}`, `${back} ${at('sport')} ${MANY}`]
  })
  const error = `${icmp} type { ${errors}destination-unreachable, time-exceeded }`
  return [...own, ...(isTarget ? [] : [`${ip} daddr ${source} ${error} ${MANY}`])].map(
    (one) => `meta time >= ${from} ${one}`,
  )
}

/** The conditions of nft that select these packets inside packets of VXLAN. Pure. */
export function tunnelledWish(wish: AwaitedPackets, from: number, port: number): string[] {
  const [first, second, size] = familyOf(wish) === 6 ? [8, 24, 128] : [12, 16, 32]
  const inside = VXLAN_HEADERS + ETHERNET_HEADER
  const is = (at: number, ip: Ip) => `@th,${8 * (inside + at)},${size} 0x${Buffer.from(bytesOf(ip)).toString('hex')}`
  const ends = new Set([wish.destination, ...wish.endpoints.map(({ ip }) => ip)])
  return [...ends].map(
    (ip) => `meta time >= ${from} udp dport ${port} ${is(first, wish.source)} ${is(second, ip)} ${FEW}`,
  )
}

// The receiver confirms the sequence number of a SYN, which counts as one byte. A reset confirms the data as well.
function confirmations(probe: Probe): number[] {
  const data = Math.max(0, (probe.size ?? 0) - HEADER[familyOf(probe)] - 20)
  return [...new Set([1, 1 + data])].map((more) => (probe.token + more) >>> 0)
}

/** The condition of nft that selects the packet inside a packet of VXLAN, in IPv4 or IPv6. Pure. */
export function tunnelledCondition(probe: Probe, port: number): string {
  const inside = VXLAN_HEADERS + ETHERNET_HEADER + HEADER[familyOf(probe)] + TOKEN_AT[probe.protocol]
  return `udp dport ${port} @th,${8 * inside},32 ${probe.token}`
}

/** Reads the headers of a traced packet. Undefined when it is not one of this probe. Pure. */
export function headersOf(probe: Probe, network: DataView, transport: DataView | undefined): Headers | undefined {
  const family = network.byteLength > 0 ? network.getUint8(0) >> 4 : 0
  if (family !== familyOf(probe) || network.byteLength < HEADER[family as 4 | 6]) return undefined
  const isV6 = family === 6
  const ends = {
    source: addressAt(network, isV6 ? 8 : 12, isV6),
    destination: addressAt(network, isV6 ? 24 : 16, isV6),
  }
  const number = network.getUint8(isV6 ? 6 : 9)
  if (!transport || transport.byteLength < 8) return undefined
  const { request, reply, errors } = ECHO[family as 4 | 6]
  const type = transport.getUint8(0)
  if (number === NUMBERS.ICMP[family as 4 | 6] && errors.includes(type)) {
    const isOurs =
      isV6 || (transport.byteLength >= 14 && transport.getUint16(12) === (probe.real?.number ?? probe.token & 0xffff))
    const found = {
      ...ends,
      port: 0,
      sourcePort: 0,
      direction: 'back',
      answer: errorOf(probe, transport, isV6),
    } as const
    return isOurs ? found : undefined
  }
  if (number !== NUMBERS[probe.protocol][family as 4 | 6]) return undefined
  const isOwn = hasToken(probe, transport)
  if (probe.protocol === 'ICMP') {
    if (!isOwn || (type !== request && type !== reply)) return undefined
    const none = { ...ends, port: 0, sourcePort: 0 }
    return type === request ? { ...none, direction: 'there' } : { ...none, direction: 'back', answer: 'open' }
  }
  const ports = { sourcePort: transport.getUint16(0), port: transport.getUint16(2) }
  if (isOwn) return { ...ends, ...ports, direction: 'there' }
  if (probe.protocol === 'UDP')
    return ports.port === probe.sourcePort ? { ...ends, ...ports, direction: 'back', answer: 'open' } : undefined
  if (transport.byteLength < 14) return undefined
  const flags = transport.getUint8(13)
  const isReset = (flags & RST) !== 0
  if (probe.real) {
    // What confirms the packet answers it. A reset may have no number.
    const confirmed = (transport.getUint32(8) - probe.token) | 0
    if (ports.port !== probe.sourcePort || (confirmed <= 0 && !isReset)) return undefined
    return { ...ends, ...ports, direction: 'back', answer: isReset ? 'closed' : 'open' }
  }
  if (!confirmations(probe).includes(transport.getUint32(8))) return undefined
  // The sender's own reset of the half-open connection is no answer.
  if (!isReset && (flags & (SYN | ACK)) !== (SYN | ACK)) return undefined
  return { ...ends, ...ports, direction: 'back', answer: isReset ? 'closed' : 'open' }
}

function hasToken({ protocol, token, real }: Probe, transport: DataView): boolean {
  const at = real?.tokenAt ?? TOKEN_AT[protocol]
  if (at === 0) return transport.getUint16(0) === token
  return transport.byteLength >= at + 4 && transport.getUint32(at) === token
}

/** Reads the first packet of a program as the one to follow. Undefined when it is another packet. Pure. */
export function realProbeOf(
  wish: AwaitedPackets,
  network: DataView,
  transport: DataView | undefined,
): Probe | undefined {
  const { source, destination } = wish
  const family = familyOf(wish)
  if (network.byteLength < HEADER[family] || network.getUint8(0) >> 4 !== family || !transport) return undefined
  if (transport.byteLength < 8) return undefined
  const isV6 = family === 6
  if (addressAt(network, isV6 ? 8 : 12, isV6) !== source) return undefined
  if (addressAt(network, isV6 ? 24 : 16, isV6) !== destination) return undefined
  const number = network.getUint8(isV6 ? 6 : 9)
  const protocol = protocolsOf(wish).find((one) => NUMBERS[one][family] === number)
  if (protocol === undefined) return undefined
  const bytes = isV6 ? HEADER[6] + network.getUint16(4) : network.getUint16(2)
  const known = { number: isV6 ? 0 : network.getUint16(4), bytes }
  if (protocol === 'ICMP') {
    if (transport.getUint8(0) !== ECHO[family].request) return undefined
    // The identifier and the number of the request, which the reply has as well (RFC 792).
    const real = { ...known, tokenAt: ICMP_NUMBERS, isFirst: false }
    return { protocol, source, destination, port: 0, sourcePort: 0, token: transport.getUint32(ICMP_NUMBERS), real }
  }
  const [sourcePort, port] = [transport.getUint16(0), transport.getUint16(2)]
  if (wish.port !== undefined && port !== wish.port) return undefined
  const ends = { protocol, source, destination, port, sourcePort }
  if (protocol === 'TCP') {
    if (transport.byteLength < 14) return undefined
    const isFirst = (transport.getUint8(13) & (SYN | ACK)) === SYN
    const real = { ...known, tokenAt: TOKEN_AT.TCP, isFirst }
    return { ...ends, token: transport.getUint32(TOKEN_AT.TCP), real }
  }
  // A datagram of less than four bytes has no number.
  const isShort = transport.byteLength < TOKEN_AT.UDP + 4
  const tokenAt = isShort ? 0 : TOKEN_AT.UDP
  const token = isShort ? sourcePort : transport.getUint32(TOKEN_AT.UDP)
  return { ...ends, token, real: { ...known, tokenAt, isFirst: false } }
}

/** Reads the ends of any packet, and its size from the IP header on. Undefined when it is no packet of IP. Pure. */
export function endsIn(
  network: DataView,
  transport: DataView | undefined,
): { readonly flow: Flow; readonly bytes: number } | undefined {
  const isV6 = network.byteLength > 0 && network.getUint8(0) >> 4 === 6
  const family = isV6 ? 6 : 4
  if (network.byteLength < HEADER[family] || (!isV6 && network.getUint8(0) >> 4 !== 4)) return undefined
  const number = network.getUint8(isV6 ? 6 : 9)
  const known = (['TCP', 'UDP', 'ICMP'] as const).find((one) => NUMBERS[one][family] === number)
  const hasPort = (known === 'TCP' || known === 'UDP') && transport !== undefined && transport.byteLength >= 4
  const flow = {
    source: addressAt(network, isV6 ? 8 : 12, isV6),
    destination: addressAt(network, isV6 ? 24 : 16, isV6),
    protocol: known ?? `protocol ${number}`,
    port: hasPort ? transport.getUint16(2) : 0,
  }
  return { flow, bytes: isV6 ? HEADER[6] + network.getUint16(4) : network.getUint16(2) }
}

/** The ends of a packet of VXLAN, by its headers. Undefined for any other packet. Pure. */
export function tunnelIn(
  network: DataView,
  transport: DataView | undefined,
  port: number,
): Pick<Headers, 'source' | 'destination' | 'port' | 'sourcePort'> | undefined {
  const isV6 = network.byteLength > 0 && network.getUint8(0) >> 4 === 6
  if (network.byteLength < HEADER[isV6 ? 6 : 4] || !transport || transport.byteLength < 4) return undefined
  if (network.getUint8(isV6 ? 6 : 9) !== NUMBERS.UDP[4] || transport.getUint16(2) !== port) return undefined
  return {
    source: addressAt(network, isV6 ? 8 : 12, isV6),
    destination: addressAt(network, isV6 ? 24 : 16, isV6),
    sourcePort: transport.getUint16(0),
    port,
  }
}

// Port unreachable is the answer of a receiver where no program listens (RFC 792, RFC 4443).
function errorOf({ protocol }: Probe, icmp: DataView, isV6: boolean): Answer {
  const isPort = isV6 ? icmp.getUint16(0) === 0x0104 : icmp.getUint16(0) === 0x0303
  return isPort && protocol !== 'ICMP' ? 'closed' : 'error'
}

function addressAt(header: DataView, at: number, isV6: boolean): Ip {
  if (!isV6) return format({ family: 4, bits: BigInt(header.getUint32(at)) })
  return format({ family: 6, bits: (header.getBigUint64(at) << 64n) | header.getBigUint64(at + 8) })
}
