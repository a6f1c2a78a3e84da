import { isSix } from '../text/cidr.ts'
import { bytesOf, type Ip } from '../text/ip.ts'
import { checksum } from './checksum.ts'
import { libc } from './door.ts'
import { bytes, lastError } from './libc.ts'

const [AF_INET, AF_PACKET, SOCK_DGRAM, SOCK_CLOEXEC, MSG_DONTWAIT] = [2, 17, 2, 0x80000, 0x40]
// netdevice(7). struct ifreq has 16 bytes of name, then the answer: a number, or the type of the hardware and its address.
const [SIOCGIFHWADDR, SIOCSIFHWADDR, SIOCGIFINDEX] = [0x8927n, 0x8924n, 0x8933n]
const [IFREQ_BYTES, IFREQ_ANSWER] = [40, 16]
const [ARPHRD_ETHER, ETH_P_IP, ETH_P_ARP, ETH_P_IPV6] = [1, 0x0800, 0x0806, 0x86dd]
const ARPOP_REQUEST = 1
const BROADCAST = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
// ff02::1, all nodes of the link, and its address of the hardware (RFC 2464).
const ALL_NODES = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
const ALL_NODES_MAC = [0x33, 0x33, 0, 0, 0, 1]
const [ICMPV6, HOPS, NEIGHBOUR_ADVERTISEMENT, OVERRIDE, TARGET_ADDRESS] = [58, 255, 136, 0x20, 2]
const ADVERTISEMENT_BYTES = 32

/**
 * Tells the neighbours of a link of this thread's namespace which MAC address has these addresses. It sends a gratuitous
 * ARP for IPv4, and an unsolicited neighbour advertisement for IPv6 (RFC 4861 section 7.2.6). A neighbour that knows
 * another MAC address replaces it. Does nothing for links that are not Ethernet. Throws Error with the errno.
 */
export function announce(link: string, addresses: readonly Ip[]): void {
  const c = libc()
  // Protocol 0: the socket receives nothing.
  const fd = c.socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0)
  if (fd < 0) throw new Error(`socket: ${lastError().code}`)
  try {
    const hardware = asked(fd, SIOCGIFHWADDR, aboutLink(link))
    if (hardware.getUint16(0, true) !== ARPHRD_ETHER) return
    const mac = Uint8Array.from({ length: 6 }, (_, i) => hardware.getUint8(2 + i))
    const index = asked(fd, SIOCGIFINDEX, aboutLink(link)).getInt32(0, true)
    for (const address of addresses) {
      const [packet, to] = isSix(address)
        ? [advertisement(bytesOf(address), mac), linkAddress(index, ETH_P_IPV6, ALL_NODES_MAC)]
        : [gratuitousArp(bytesOf(address), mac), linkAddress(index, ETH_P_ARP, BROADCAST)]
      if (Number(c.sendto(fd, packet, BigInt(packet.length), MSG_DONTWAIT, to, to.length)) < 0)
        throw new Error(`sendto: ${lastError().code}`)
    }
  } finally {
    c.close(fd)
  }
}

/**
 * Has the kernel tell the same of all addresses of a link of this thread's namespace. The link gets the MAC address that
 * it has, and the kernel announces a MAC address that was set where the link's arp_notify and ndisc_notify are on. It
 * forgets the link's own neighbours. Unlike `announce`, this needs no packet socket: to close one, the kernel waits until
 * no processor handles a packet, 10 ms and more. Throws Error with the errno.
 */
export function announceByKernel(link: string): void {
  const c = libc()
  const fd = c.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)
  if (fd < 0) throw new Error(`socket: ${lastError().code}`)
  try {
    const request = aboutLink(link)
    asked(fd, SIOCGIFHWADDR, request)
    asked(fd, SIOCSIFHWADDR, request)
  } finally {
    c.close(fd)
  }
}

function aboutLink(link: string): Uint8Array {
  const request = new Uint8Array(IFREQ_BYTES)
  request.set(bytes(link))
  return request
}

// The answer is in the request. It lies where the next question has its argument.
function asked(fd: number, question: bigint, request: Uint8Array): DataView {
  if (libc().ioctl(fd, question, request) !== 0) throw new Error(`ioctl: ${lastError().code}`)
  return new DataView(request.buffer, IFREQ_ANSWER)
}

// struct sockaddr_ll (packet(7)).
function linkAddress(index: number, protocol: number, mac: readonly number[]): Uint8Array {
  const address = new DataView(new ArrayBuffer(20))
  address.setUint16(0, AF_PACKET, true)
  address.setUint16(2, protocol)
  address.setInt32(4, index, true)
  address.setUint8(11, mac.length)
  const all = new Uint8Array(address.buffer)
  all.set(mac, 12)
  return all
}

// As the kernel sends it (inetdev_send_gratuitous_arp): a request by the address for itself.
function gratuitousArp(ip: Uint8Array, mac: Uint8Array): Uint8Array {
  const head = new DataView(new ArrayBuffer(8))
  head.setUint16(0, ARPHRD_ETHER)
  head.setUint16(2, ETH_P_IP)
  head.setUint8(4, mac.length)
  head.setUint8(5, ip.length)
  head.setUint16(6, ARPOP_REQUEST)
  return new Uint8Array([...new Uint8Array(head.buffer), ...mac, ...ip, ...new Uint8Array(mac.length), ...ip])
}

function advertisement(ip: Uint8Array, mac: Uint8Array): Uint8Array {
  const addresses = [...ip, ...ALL_NODES]
  const body = new Uint8Array([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0, ...ip, TARGET_ADDRESS, 1, ...mac])
  const pseudo = new Uint8Array([...addresses, 0, 0, 0, ADVERTISEMENT_BYTES, 0, 0, 0, ICMPV6])
  new DataView(body.buffer).setUint16(2, checksum([pseudo, body]))
  const header = [0x60, 0, 0, 0, 0, ADVERTISEMENT_BYTES, ICMPV6, HOPS, ...addresses]
  return new Uint8Array([...header, ...body])
}
