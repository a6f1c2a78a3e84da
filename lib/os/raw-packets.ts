import { isSix } from '../text/cidr.ts'
import { bytesOf, format, type Ip } from '../text/ip.ts'
import { libc } from './door.ts'
import { lastError } from './libc.ts'

const [AF_INET, AF_INET6, SOCK_RAW, SOCK_FLAGS, IPPROTO_RAW, MSG_DONTWAIT] = [2, 10, 3, 0x80800, 255, 0x40]
const LONGEST_BYTES = 65_536
/** Where an address stands in struct sockaddr_in and sockaddr_in6, and how many bytes the struct has. */
const PLACES = { 4: { at: 4, bytes: 16 }, 6: { at: 8, bytes: 28 } } as const

/** A message of a protocol above IP: who sent it, and its bytes from the header of the protocol on. */
export interface Message {
  readonly from: Ip
  readonly bytes: Uint8Array
}
/**
 * A socket for one protocol above IP, at one address (raw(7)). It belongs to the namespace in which the process opened
 * it. What it sends and gets passes the firewall as the packets of other sockets do.
 */
export interface RawSocket {
  /** Sends a message. The kernel adds the IP header. Returns false when the kernel refuses it; `lastError` says why. */
  send(to: Ip, bytes: Uint8Array): boolean
  /** The next message that has arrived. Undefined when there is none. */
  hear(): Message | undefined
  close(): void
}

/**
 * Opens a socket for a protocol, by its number, at an address of this thread's namespace. Needs CAP_NET_RAW. Throws
 * Error with the errno.
 */
export function openRaw(at: Ip, protocol: number): RawSocket {
  const c = libc()
  const isV6 = isSix(at)
  const own = socketAddress(at)
  const fd = c.socket(isV6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_FLAGS, protocol)
  if (fd < 0) throw new Error(`Cannot open a socket for protocol ${protocol}: ${lastError().code}`)
  if (c.bind(fd, own, own.length) !== 0) {
    const { code } = lastError()
    c.close(fd)
    throw new Error(`Cannot listen at ${at}: ${code}`)
  }
  const place = PLACES[isV6 ? 6 : 4]
  const buffer = new Uint8Array(LONGEST_BYTES)
  const sender = new Uint8Array(place.bytes)
  const length = new Uint32Array(1)
  let isOpen = true
  return {
    send(to, bytes) {
      const address = socketAddress(to)
      return Number(c.sendto(fd, bytes, BigInt(bytes.length), MSG_DONTWAIT, address, address.length)) === bytes.length
    },
    hear() {
      length[0] = place.bytes
      const size = isOpen ? Number(c.recvfrom(fd, buffer, BigInt(buffer.length), MSG_DONTWAIT, sender, length)) : -1
      if (size < 0) return undefined
      // A packet of IPv4 begins with its IP header, one of IPv6 does not.
      const start = isV6 ? 0 : ((buffer[0] as number) & 0xf) * 4
      return { from: ipAt(sender.subarray(place.at, place.at + (isV6 ? 16 : 4))), bytes: buffer.slice(start, size) }
    },
    close() {
      if (isOpen) c.close(fd)
      isOpen = false
    },
  }
}

function ipAt(bytes: Uint8Array): Ip {
  const bits = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n)
  return format({ family: bytes.length === 4 ? 4 : 6, bits })
}

/**
 * Sends one packet as it is, from its IP header on, by the routes of this thread's namespace (raw(7)). Needs
 * CAP_NET_RAW. `from` must be an address of the namespace: rules of routing may ask for it. Throws Error with the errno.
 */
export function sendPacket(from: Ip, to: Ip, packet: Uint8Array): void {
  const c = libc()
  const fd = c.socket(isSix(to) ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_FLAGS, IPPROTO_RAW)
  if (fd < 0) throw new Error(`socket: ${lastError().code}`)
  try {
    const [source, destination] = [socketAddress(from), socketAddress(to)]
    if (c.bind(fd, source, source.length) !== 0) throw new Error(`bind: ${lastError().code}`)
    const sent = c.sendto(fd, packet, BigInt(packet.length), MSG_DONTWAIT, destination, destination.length)
    if (Number(sent) < 0) throw new Error(`sendto: ${lastError().code}`)
  } finally {
    c.close(fd)
  }
}

/** struct sockaddr_in or sockaddr_in6: family, port, the flow (only IPv6), the address, and the scope (only IPv6). */
export function socketAddress(ip: Ip): Uint8Array {
  const isV6 = isSix(ip)
  const { at, bytes } = PLACES[isV6 ? 6 : 4]
  const address = new Uint8Array(bytes)
  new DataView(address.buffer).setUint16(0, isV6 ? AF_INET6 : AF_INET, true)
  address.set(bytesOf(ip), at)
  return address
}
