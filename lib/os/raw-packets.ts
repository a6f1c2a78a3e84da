import { isSix } from '../text/cidr.ts'
import { bytesOf, type Ip } from '../text/ip.ts'
import { libc } from './door.ts'
import { lastError } from './libc.ts'

const [AF_INET, AF_INET6, SOCK_RAW, SOCK_FLAGS, IPPROTO_RAW, MSG_DONTWAIT] = [2, 10, 3, 0x80800, 255, 0x40]

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

// struct sockaddr_in and sockaddr_in6: family, port, the flow (only IPv6), the address, and the scope (only IPv6).
function socketAddress(ip: Ip): Uint8Array {
  const six = isSix(ip)
  const bytes = new Uint8Array(six ? 28 : 16)
  new DataView(bytes.buffer).setUint16(0, six ? AF_INET6 : AF_INET, true)
  bytes.set(bytesOf(ip), six ? 8 : 4)
  return bytes
}
