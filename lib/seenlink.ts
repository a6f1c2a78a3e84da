import { netlink } from './libc.ts'

const NETLINK_ROUTE = 0
// linux/rtnetlink.h, if_link.h and if_arp.h
const [NEWLINK, GETLINK, NLM_F_REQUEST] = [16, 18, 1]
const [ADDRESS, NAME, MTU, LINKINFO, ALIAS, INFO_KIND] = [1, 3, 4, 18, 20, 1]
const ARPHRD_ETHER = 1
// struct nlmsghdr and struct ifinfomsg, before the attributes.
const [HEADERS, IFI_TYPE, IFI_INDEX] = [32, 18, 20]

/** What the kernel says of one link. */
export interface SeenLink {
  readonly index: number
  readonly mtu: number
  /** Six lower-case hex pairs, where it has such an address. */
  readonly mac: string
  /** As `ip -d link` names it: `macvlan`, `veth`; empty for hardware and for lo. */
  readonly kind: string
  readonly alias: string
  readonly isEthernet: boolean
}

/** What the kernel says of a link of this thread's namespace (rtnetlink(7)), in microseconds and without a process; undefined when there is none. Throws Error with the errno when it cannot be asked. */
export function seenLink(name: string): SeenLink | undefined {
  for (const answer of netlink(NETLINK_ROUTE, question(name))) {
    if (answer.getUint16(4, true) !== NEWLINK) return undefined
    const found = attributes(answer, HEADERS)
    const inner = found.get(LINKINFO)
    return {
      index: answer.getInt32(IFI_INDEX, true),
      mtu: found.get(MTU)?.getUint32(0, true) ?? 0,
      mac: [...octets(found.get(ADDRESS))].map((octet) => octet.toString(16).padStart(2, '0')).join(':'),
      kind: text(inner && attributes(inner, 0).get(INFO_KIND)),
      alias: text(found.get(ALIAS)),
      isEthernet: answer.getUint16(IFI_TYPE, true) === ARPHRD_ETHER,
    }
  }
  return undefined
}

function question(name: string): Uint8Array {
  const bytes = new TextEncoder().encode(`${name}\0`)
  const request = new Uint8Array(HEADERS + ((4 + bytes.length + 3) & ~3))
  const view = new DataView(request.buffer)
  view.setUint32(0, request.length, true)
  view.setUint16(4, GETLINK, true)
  view.setUint16(6, NLM_F_REQUEST, true)
  view.setUint16(HEADERS, 4 + bytes.length, true)
  view.setUint16(HEADERS + 2, NAME, true)
  request.set(bytes, HEADERS + 4)
  return request
}

function attributes(message: DataView, start: number): Map<number, DataView> {
  const found = new Map<number, DataView>()
  for (let at = start, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4 || at + size > message.byteLength) break
    // The two highest bits are flags.
    found.set(message.getUint16(at + 2, true) & 0x3fff, new DataView(message.buffer, message.byteOffset + at + 4, size - 4))
  }
  return found
}

function octets(value: DataView | undefined): Uint8Array {
  return value ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array()
}

function text(value: DataView | undefined): string {
  return new TextDecoder().decode(octets(value)).replace(/\0+$/, '')
}
