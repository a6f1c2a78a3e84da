import type { Ip } from '../../lib/text/ip.ts'
import { bytesOf, ipOf, joined, numberOf } from './bytes.ts'

/** The source and destination addresses of a UDP datagram. */
export interface Ends {
  readonly from: Ip
  readonly to: Ip
}
/** A received UDP datagram. */
export interface Datagram extends Ends {
  readonly payload: Uint8Array
}

const UDP = 17
const [HEADER4, HEADER6, HEADER_UDP] = [20, 40, 8]
/** The UDP ports [client, server] of DHCP, by IP version (RFC 2131, RFC 8415). */
const PORTS = { 4: [68, 67], 6: [546, 547] } as const

/** Builds an IP packet with a message to a DHCP server (RFC 791, RFC 8200, RFC 768). */
export function toServer({ from, to }: Ends, payload: Uint8Array): Uint8Array {
  const [source, target] = [bytesOf(from), bytesOf(to)]
  const version = source.length === 4 ? 4 : 6
  const [client, server] = PORTS[version]
  const length = HEADER_UDP + payload.length
  const udp = (sum: number) => joined([client, 2], [server, 2], [length, 2], [sum, 2], payload)
  const pseudo = joined(source, target, [length, 4], [UDP, 4])
  // A checksum field of zero means "no checksum" (RFC 768). A computed zero is sent as 0xffff.
  const body = udp(checksum(joined(pseudo, udp(0))) || 0xffff)
  if (version === 6) return joined([0x60000000, 4], [length, 2], UDP, 64, source, target, body)
  const head = (sum: number) => joined(0x45, 0x10, [HEADER4 + length, 2], [0, 4], 64, UDP, [sum, 2], source, target)
  return joined(head(checksum(head(0))), body)
}

/**
 * Reads the datagram from an IP packet to the DHCP client port. Undefined for any other packet and for a truncated
 * packet. Does not verify checksums, because the kernel leaves them out between namespaces of one machine.
 */
export function fromServer(packet: Uint8Array): Datagram | undefined {
  const version = (packet[0] ?? 0) >> 4
  if (version === 4) return unwrap4(packet)
  if (version !== 6 || packet[6] !== UDP || packet.length < HEADER6 + HEADER_UDP) return undefined
  return unwrapUdp(packet.subarray(HEADER6), 6, { from: ipOf(packet.slice(8, 24)), to: ipOf(packet.slice(24, 40)) })
}

function unwrap4(packet: Uint8Array): Datagram | undefined {
  const head = ((packet[0] ?? 0) & 15) * 4
  if (head < HEADER4 || packet[9] !== UDP || packet.length < head + HEADER_UDP) return undefined
  return unwrapUdp(packet.subarray(head), 4, { from: ipOf(packet.slice(12, 16)), to: ipOf(packet.slice(16, 20)) })
}

function unwrapUdp(udp: Uint8Array, version: 4 | 6, ends: Ends): Datagram | undefined {
  const [client] = PORTS[version]
  const length = numberOf(udp.subarray(4, 6))
  if (numberOf(udp.subarray(2, 4)) !== client || length < HEADER_UDP || length > udp.length) return undefined
  return { ...ends, payload: udp.slice(HEADER_UDP, length) }
}

// The Internet checksum (RFC 1071).
function checksum(bytes: Uint8Array): number {
  let sum = 0
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i] as number) * 256 + (bytes[i + 1] ?? 0)
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x10000)
  return ~sum & 0xffff
}
