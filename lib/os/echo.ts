import { isSix } from '../text/cidr.ts'
import type { Ip } from '../text/ip.ts'
import { checksum } from './checksum.ts'
import { errno, libc } from './door.ts'
import { BPF, filterPackets, type Instruction } from './packet-filter.ts'
import { socketAddress } from './raw-packets.ts'

/** An answer to an echo request: the request's data and the round-trip time. */
export interface Echoed {
  /** The number of the target, as given to `send`. */
  readonly target: number
  /** The number of the request, as given to `send`. */
  readonly serial: number
  /** The round-trip time in milliseconds. Undefined when the clock was set meanwhile. */
  readonly ms?: number
}
/** A socket for ICMP echo requests from one address. It belongs to the namespace in which the process opened it. */
export interface Echoes {
  /**
   * Sends one request, whose packet with its IP header has `bytes`, or as few as possible. Nobody may fragment it.
   * Returns false when the kernel refuses it.
   */
  send(to: Ip, target: number, serial: number, bytes?: number): boolean
  /** The next answer that has arrived. Undefined when there is none. */
  hear(): Echoed | undefined
  close(): void
}

const [AF_INET, AF_INET6, SOCK_RAW, SOCK_FLAGS, MSG_DONTWAIT] = [2, 10, 3, 0x80800, 0x40]
const CLOCK_REALTIME = 0
// linux/sockios.h: the time when the kernel received the last packet that was read. It is wall-clock time in a struct
// timespec. The first call switches this function on.
const SIOCGSTAMPNS = 0x8907n
// linux/in.h and linux/in6.h: never fragment, and do not ask what is known of the path.
const [IPPROTO_IP, IP_MTU_DISCOVER, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_DONTFRAG, PMTUDISC_PROBE] = [
  0, 10, 41, 23, 62, 3,
]
/** The bytes of the IP headers, without options. */
const IP_HEADER = { 4: 20, 6: 40 } as const
/** The protocol and the types of request and answer (RFC 792, RFC 4443). */
const KINDS = { 4: { protocol: 1, request: 8, reply: 0 }, 6: { protocol: 58, request: 128, reply: 129 } } as const
// The ICMP header has type, code, checksum, id and sequence number. Then follow plumb's data: a word that only this
// process knows, the target, the serial and the time.
const [HEADER_BYTES, PACKET_BYTES, ANSWER_BYTES, LONGEST_BYTES] = [8, 32, 256, 65_000]
/** The longest credible round trip in ms. A longer value means that the clock was set. */
const LONGEST_MS = 60_000

/**
 * Opens a socket for echo requests. Needs CAP_NET_RAW. A filter in the kernel drops the answers to requests of other
 * sockets. Throws Error with the errno.
 */
export function openEchoes(from: Ip): Echoes {
  const version = isSix(from) ? 6 : 4
  const { protocol } = KINDS[version]
  const c = libc()
  const fd = c.socket(version === 6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_FLAGS, protocol)
  if (fd < 0) throw new Error(`socket: errno ${errno()}`)
  const id = Math.floor(Math.random() * 0x10000)
  const address = socketAddress(from)
  if (!filterPackets(fd, answersTo(version, id)) || c.bind(fd, address, address.length) !== 0) {
    const code = errno()
    c.close(fd)
    throw new Error(
      `Cannot send from ${from}: ${code === EADDRNOTAVAIL ? 'the node does not have this address' : `errno ${code}`}`,
    )
  }
  c.ioctl(fd, SIOCGSTAMPNS, new BigInt64Array(2))
  const options =
    version === 4
      ? [[IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE] as const]
      : [[IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE] as const, [IPPROTO_IPV6, IPV6_DONTFRAG, 1] as const]
  for (const [level, name, value] of options) c.setsockopt(fd, level, name, Uint32Array.of(value), 4n)
  return echoes(fd, version, id)
}

function echoes(fd: number, version: 4 | 6, id: number): Echoes {
  const c = libc()
  const { request } = KINDS[version]
  const word = BigInt(Math.floor(Math.random() * 0xffff_ffff))
  // The data behind plumb's own is zero.
  const room = new ArrayBuffer(LONGEST_BYTES)
  const packet = new DataView(room, 0, PACKET_BYTES)
  const bytes = new Uint8Array(room)
  const answer = new Uint8Array(ANSWER_BYTES)
  const clock = new BigInt64Array(2)
  const addresses = new Map<Ip, Uint8Array>()
  const now = () => (clock[0] as bigint) * 1_000_000_000n + (clock[1] as bigint)
  return {
    send(to, target, serial, wanted = 0) {
      const size = Math.min(LONGEST_BYTES, Math.max(PACKET_BYTES, wanted - IP_HEADER[version]))
      const address = addresses.get(to) ?? socketAddress(to)
      addresses.set(to, address)
      packet.setUint16(0, request << 8)
      packet.setUint16(2, 0)
      packet.setUint16(4, id)
      packet.setUint16(6, serial & 0xffff)
      packet.setUint32(HEADER_BYTES, Number(word))
      packet.setUint32(HEADER_BYTES + 4, target)
      packet.setUint32(HEADER_BYTES + 8, serial)
      c.clock_gettime(CLOCK_REALTIME, clock)
      packet.setBigInt64(HEADER_BYTES + 16, now())
      // The ICMPv6 checksum also covers the addresses. The kernel fills it in.
      if (version === 4) packet.setUint16(2, checksum([bytes.subarray(0, PACKET_BYTES)]))
      return Number(c.sendto(fd, bytes, BigInt(size), MSG_DONTWAIT, address, address.length)) === size
    },
    hear() {
      for (;;) {
        const size = Number(c.recv(fd, answer, BigInt(ANSWER_BYTES), MSG_DONTWAIT))
        if (size < 0) return undefined
        // An IPv4 packet begins with its IP header.
        const at = version === 4 ? ((answer[0] as number) & 0xf) * 4 : 0
        if (size < at + PACKET_BYTES) continue
        const view = new DataView(answer.buffer, at + HEADER_BYTES)
        if (view.getUint32(0) !== Number(word)) continue
        const came = c.ioctl(fd, SIOCGSTAMPNS, clock) === 0
        const ms = Number(now() - view.getBigInt64(16)) / 1e6
        return {
          target: view.getUint32(4),
          serial: view.getUint32(8),
          ...(came && ms >= 0 && ms < LONGEST_MS ? { ms } : {}),
        }
      }
    },
    close: () => void c.close(fd),
  }
}

// Accepts an echo reply with this socket's id.
function answersTo(version: 4 | 6, id: number): Instruction[] {
  return [
    // X is the start of the ICMP header: after the IP header for IPv4, 0 for IPv6.
    version === 4 ? [BPF.loadXHeader, 0, 0, 0] : [BPF.loadX, 0, 0, 0],
    [BPF.loadByteX, 0, 0, 0],
    [BPF.equal, 0, 3, KINDS[version].reply],
    [BPF.loadHalfX, 0, 0, 4],
    [BPF.equal, 0, 1, id],
  ]
}

const EADDRNOTAVAIL = 99
