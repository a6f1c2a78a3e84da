// Frames that carry a packet past what reads only plain IP: with tags of VLANs, in PPPoE, of an unknown type, or with the
// address of another pod. Run as a program it sends one from eth0 of its namespace: its argument is the frame as JSON.
import { checksum } from '../../lib/os/checksum.ts'
import { openArp } from '../../lib/os/packets.ts'
import { bytesOf, type Ip } from '../../lib/text/ip.ts'
import type { Mac, Netns } from '../../lib/text/values.ts'

/** The kinds of frames, by what stands between the addresses of Ethernet and the packet. */
const HEADS = {
  plain: [],
  'priority tag': [0x81, 0x00, 0, 0],
  '802.1ad tag': [0x88, 0xa8, 0, 0],
  'two tags': [0x88, 0xa8, 0, 0, 0x81, 0x00, 0, 0],
  'tag of VLAN 7': [0x81, 0x00, 0, 7],
  'forged source': [],
} as const
/** Frames whose type says that no packet of IP follows. */
const TYPES: Readonly<Record<string, readonly number[]>> = {
  PPPoE: [0x88, 0x64],
  MPLS: [0x88, 0x47],
  'unknown type': [0x88, 0xb5],
}

/** Messages of neighbour discovery: the type of ICMPv6 and the hop limit. One that was routed has not the highest. */
const DISCOVERY: Readonly<Record<string, { readonly type: number; readonly hops: number }>> = {
  'router advertisement': { type: 134, hops: 255 },
  'neighbour advertisement': { type: 136, hops: 255 },
  'routed neighbour advertisement': { type: 136, hops: 64 },
}

export interface RawFrame {
  readonly kind: keyof typeof HEADS | keyof typeof TYPES | keyof typeof DISCOVERY
  /** The message of the UDP packet in it. Of a neighbour advertisement: the address that the sender takes for its own. */
  readonly text: string
  readonly mac: string
  readonly source: string
  readonly ip: string
}

/** The kinds of frames that carry a packet which the receiver's kernel takes as if it had no tag. */
export const TAGGED = ['priority tag', '802.1ad tag', 'two tags'] as const
/** All kinds that no policy decides. */
export const UNDECIDED = [...TAGGED, 'tag of VLAN 7', ...Object.keys(TYPES)] as const

/** Sends a frame from eth0 of this namespace. Throws Error with the errno. */
export function sendRaw({ kind, text, mac, source, ip }: RawFrame): void {
  const wire = openArp('/proc/self/ns/net' as Netns, 'eth0')
  try {
    const discovery = DISCOVERY[kind]
    if (discovery !== undefined) {
      const message = discoveryOf(discovery.type, text, wire.mac)
      wire.send(mac as Mac, Uint8Array.from(icmpOf(source, ip, message, discovery.hops)), 0x86dd)
      return
    }
    const head: readonly number[] = HEADS[kind as keyof typeof HEADS] ?? []
    const type = TYPES[kind] ?? (ip.includes(':') ? [0x86, 0xdd] : [0x08, 0x00])
    const bytes = Uint8Array.from([...head, ...type, ...packetOf(source, ip, text)])
    // The socket writes the first two bytes as the type of the frame.
    wire.send(mac as Mac, bytes.subarray(2), ((bytes[0] as number) << 8) | (bytes[1] as number))
  } finally {
    wire.close()
  }
}

// A packet of UDP to port 80 from its IP header on.
function packetOf(source: string, ip: string, text: string): number[] {
  const [from, to] = [[...bytesOf(source as Ip)], [...bytesOf(ip as Ip)]]
  const data = [...new TextEncoder().encode(text)]
  const length = 8 + data.length
  const words = (value: number) => [value >> 8, value & 255]
  const udp = (sum: number) => [...words(5009), ...words(80), ...words(length), ...words(sum), ...data]
  const sum = checksum([Uint8Array.of(...from, ...to, 0, 17, ...words(length), ...udp(0))]) || 0xffff
  if (from.length === 16) return [0x60, 0, 0, 0, ...words(length), 17, 64, ...from, ...to, ...udp(sum)]
  const head = (own: number) => [0x45, 0, ...words(20 + length), 0, 0, 0, 0, 64, 17, ...words(own), ...from, ...to]
  return [...head(checksum([Uint8Array.from(head(0))])), ...udp(sum)]
}

// A router for half an hour, preferred to others (RFC 4191), or the hardware address of an address, instead of any that is
// known (RFC 4861).
function discoveryOf(type: number, target: string, mac: string): number[] {
  const own = mac.split(':').map((byte) => Number.parseInt(byte, 16))
  if (type === 134) return [type, 0, 0, 0, 64, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, ...own]
  return [type, 0, 0, 0, 0x20, 0, 0, 0, ...bytesOf(target as Ip), 2, 1, ...own]
}

function icmpOf(source: string, ip: string, message: readonly number[], hops: number): number[] {
  const [from, to] = [[...bytesOf(source as Ip)], [...bytesOf(ip as Ip)]]
  const sum = checksum([Uint8Array.of(...from, ...to, 0, 0, 0, message.length, 0, 0, 0, 58, ...message)])
  const summed = [...message.slice(0, 2), sum >> 8, sum & 255, ...message.slice(4)]
  return [0x60, 0, 0, 0, 0, message.length, 58, hops, ...from, ...to, ...summed]
}

if (import.meta.main) sendRaw(JSON.parse(process.argv[2] ?? '{}') as RawFrame)
