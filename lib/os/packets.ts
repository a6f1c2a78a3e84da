import type { Mac, Netns } from '../text/values.ts'
import { errno, libc } from './door.ts'
import { type LinkFacts, linkFacts, linkIn } from './links.ts'
import { inside, isNoNamespace } from './netns.ts'
import { BPF, filterPackets, type Instruction } from './packet-filter.ts'

/** A received packet: the sender's MAC, and the bytes from the IP header on. */
export interface Received {
  readonly from: Mac
  readonly bytes: Uint8Array
}
/**
 * An open packet socket of one link (packet(7)). It belongs to the link's namespace, and works from any namespace of
 * the process.
 */
export interface Wire extends Pick<LinkFacts, 'index' | 'mac'> {
  /** Sends a packet. `type` is the EtherType, by default the socket's own. */
  send(to: Mac, bytes: Uint8Array, type?: number): void
  /** The next packet that has arrived. Undefined when there is none. */
  hear(): Received | undefined
  close(): void
}

const [AF_INET, AF_PACKET, SOCK_DGRAM, SOCK_FLAGS, MSG_DONTWAIT] = [2, 17, 2, 0x80000, 0x40]
const [SIOCGIFFLAGS, SIOCSIFFLAGS] = [0x8913n, 0x8914n]
const IFF_UP = 1
// struct ifreq has 16 bytes of name, then the requested data. struct sockaddr_ll has 20 bytes.
const [IFREQ_BYTES, IFREQ_DATA, ADDRESS_BYTES, PACKET_BYTES] = [40, 16, 20, 65_535]
/** The EtherType of ARP. */
const ARP = 0x0806
/** The EtherType of an IP version, and the port of its DHCP clients. */
const KINDS = { 4: { type: 0x0800, port: 68 }, 6: { type: 0x86dd, port: 546 } } as const

/**
 * Opens a link for packets of an IP version. A filter passes only UDP to the DHCP clients' port. Throws CniError 3 when
 * the namespace cannot be entered. Throws Error when the link does not exist or is no Ethernet link.
 */
export function openWire(ns: Netns, ifname: string, version: 4 | 6): Wire {
  const { type, port } = KINDS[version]
  return open(ns, ifname, type, toClients(version, port))
}

/**
 * Opens a link for ARP. A filter passes only answers. Throws CniError 3 when the namespace cannot be entered. Throws
 * Error when the link does not exist or is no Ethernet link.
 */
export function openArp(ns: Netns, ifname: string): Wire {
  return open(ns, ifname, ARP, ARP_ANSWERS)
}

function open(ns: Netns, ifname: string, type: number, filter: readonly Instruction[]): Wire {
  return inside(ns, () => {
    const facts = linkFacts(ifname)
    if (!facts?.isEthernet)
      throw new Error(`Cannot use the link ${ifname}: ${facts ? 'it is no Ethernet link' : 'there is none'}`)
    const c = libc()
    // The socket starts with protocol 0, so that no packet arrives unfiltered. Then bind sets the EtherType.
    const fd = c.socket(AF_PACKET, SOCK_DGRAM | SOCK_FLAGS, 0)
    if (fd < 0) throw new Error(`socket: errno ${errno()}`)
    const address = linkAddress(type, facts.index)
    if (!filterPackets(fd, filter) || c.bind(fd, address, ADDRESS_BYTES) !== 0) {
      const code = errno()
      c.close(fd)
      throw new Error(`Cannot listen on ${ifname}: errno ${code}`)
    }
    return wire(fd, type, facts)
  })
}

/**
 * The kernel's facts about an Ethernet link. Undefined when the namespace or such a link does not exist. Throws NoAnswer,
 * and CniError 3 when the namespace exists and cannot be entered.
 */
export function ethernetIn(ns: Netns, ifname: string): LinkFacts | undefined {
  try {
    const facts = linkIn(ifname, ns)
    return facts?.isEthernet ? facts : undefined
  } catch (cause) {
    if (ns !== 'host' && isNoNamespace(ns)) return undefined
    throw cause
  }
}

/** Sets a link up or down. Throws CniError 3 when the namespace cannot be entered, otherwise Error with the errno. */
export function setLink(ns: Netns, ifname: string, up: boolean): void {
  inside(ns, () => {
    const request = ask(ifname, SIOCGIFFLAGS)
    const flags = request.getUint16(IFREQ_DATA, true)
    request.setUint16(IFREQ_DATA, up ? flags | IFF_UP : flags & ~IFF_UP, true)
    control(SIOCSIFFLAGS, request, ifname)
  })
}

function wire(fd: number, type: number, { index, mac }: LinkFacts): Wire {
  const c = libc()
  const buffer = new Uint8Array(PACKET_BYTES)
  const sender = new Uint8Array(ADDRESS_BYTES)
  const length = new Uint32Array(1)
  let open = true
  return {
    index,
    mac,
    send(to, bytes, other = type) {
      const address = linkAddress(other, index, to)
      if (Number(c.sendto(fd, bytes, BigInt(bytes.length), MSG_DONTWAIT, address, ADDRESS_BYTES)) < 0)
        throw new Error(`Cannot send: errno ${errno()}`)
    },
    hear() {
      length[0] = ADDRESS_BYTES
      const size = open ? Number(c.recvfrom(fd, buffer, BigInt(buffer.length), MSG_DONTWAIT, sender, length)) : -1
      return size < 0 ? undefined : { from: macAt(sender, 12), bytes: buffer.slice(0, size) }
    },
    close() {
      if (open) c.close(fd)
      open = false
    },
  }
}

function ask(ifname: string, what: bigint): DataView<ArrayBuffer> {
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(new TextEncoder().encode(ifname).subarray(0, 15))
  return control(what, new DataView(request.buffer), ifname)
}

function control(what: bigint, request: DataView<ArrayBuffer>, ifname: string): DataView<ArrayBuffer> {
  const c = libc()
  const fd = c.socket(AF_INET, SOCK_DGRAM | SOCK_FLAGS, 0)
  try {
    if (c.ioctl(fd, what, new Uint8Array(request.buffer)) !== 0)
      throw new Error(`Cannot use the link ${ifname}: ${errno() === 19 ? 'there is none' : `errno ${errno()}`}`)
    return request
  } finally {
    c.close(fd)
  }
}

// struct sockaddr_ll: family, EtherType in network order, index, hardware type, packet type, length of the address, the
// address.
function linkAddress(type: number, index: number, to?: Mac): Uint8Array {
  const view = new DataView(new ArrayBuffer(ADDRESS_BYTES))
  view.setUint16(0, AF_PACKET, true)
  view.setUint16(2, type)
  view.setInt32(4, index, true)
  if (to === undefined) return new Uint8Array(view.buffer)
  view.setUint8(11, 6)
  for (const [i, pair] of to.split(':').entries()) view.setUint8(12 + i, Number.parseInt(pair, 16))
  return new Uint8Array(view.buffer)
}

function macAt(bytes: Uint8Array, at: number): Mac {
  return [...bytes.subarray(at, at + 6)].map((byte) => byte.toString(16).padStart(2, '0')).join(':') as Mac
}

// Offsets begin at the header behind Ethernet's.
function toClients(version: 4 | 6, port: number): Instruction[] {
  return version === 4
    ? [
        [BPF.loadByte, 0, 0, 9],
        [BPF.equal, 0, 6, UDP],
        // Only the first fragment has ports.
        [BPF.loadHalf, 0, 0, 6],
        [BPF.some, 4, 0, 0x1fff],
        [BPF.loadXHeader, 0, 0, 0],
        [BPF.loadHalfX, 0, 0, 2],
        [BPF.equal, 0, 1, port],
      ]
    : [
        [BPF.loadByte, 0, 0, 6],
        [BPF.equal, 0, 3, UDP],
        [BPF.loadHalf, 0, 0, 42],
        [BPF.equal, 0, 1, port],
      ]
}

const UDP = 17

// RFC 826: the operation is at byte 6, and 2 is an answer.
const ARP_ANSWERS: readonly Instruction[] = [
  [BPF.loadHalf, 0, 0, 6],
  [BPF.equal, 0, 1, 2],
]
