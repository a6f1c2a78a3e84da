import { netlink } from './libc.ts'
import { inside } from './netns.ts'
import type { Netns } from './state.ts'
import type { IfName } from './values.ts'

/** A link as the kernel tells of it. Addresses of hardware are hex pairs, of any length. */
export interface LinkFacts {
  readonly name: IfName
  readonly index: number
  readonly isUp: boolean
  readonly mac: string
  readonly mtu: number
  readonly alias?: string
  /** The address that the hardware was made with; absent for what is no hardware. */
  readonly permanent?: string
}

// linux/rtnetlink.h, if_link.h and netlink.h
const NETLINK_ROUTE = 0
const [RTM_NEWLINK, RTM_GETLINK] = [16, 18]
const [NLM_F_REQUEST, NLM_F_DUMP] = [1, 0x300]
const [ADDRESS, NAME, MTU, ALIAS, EXT_MASK, PERMANENT] = [1, 3, 4, 20, 29, 54]
const SKIP_STATISTICS = 8
const IFF_UP = 1
// struct nlmsghdr and struct ifinfomsg, before the attributes.
const HEADERS = 32
const [INDEX_AT, FLAGS_AT] = [20, 24]

/** The links of a namespace, or the one of a name, asked of the kernel itself (rtnetlink(7)): no process is started, and sysfs, which shows the namespace it was mounted in, is not looked at. Throws CniError 3 when the namespace cannot be entered. */
export function linksIn(ns: Netns, name?: IfName): LinkFacts[] {
  const asked = question(name)
  return inside(ns, () => {
    const found: LinkFacts[] = []
    // One by one: they share a buffer.
    for (const answer of netlink(NETLINK_ROUTE, asked)) if (answer.getUint16(4, true) === RTM_NEWLINK) found.push(factsOf(answer))
    return found
  })
}

function question(name: IfName | undefined): Uint8Array {
  const text = new TextEncoder().encode(`${name ?? ''}\0`)
  const bytes = new Uint8Array(HEADERS + 8 + (name === undefined ? 0 : (4 + text.length + 3) & ~3))
  const view = new DataView(bytes.buffer)
  view.setUint32(0, bytes.length, true)
  view.setUint16(4, RTM_GETLINK, true)
  view.setUint16(6, name === undefined ? NLM_F_REQUEST | NLM_F_DUMP : NLM_F_REQUEST, true)
  attribute(view, HEADERS, EXT_MASK, 8)
  view.setUint32(HEADERS + 4, SKIP_STATISTICS, true)
  if (name === undefined) return bytes
  attribute(view, HEADERS + 8, NAME, 4 + text.length)
  bytes.set(text, HEADERS + 12)
  return bytes
}

function attribute(view: DataView, at: number, type: number, length: number): void {
  view.setUint16(at, length, true)
  view.setUint16(at + 2, type, true)
}

function factsOf(message: DataView): LinkFacts {
  const found = new Map<number, Uint8Array>()
  for (let at = HEADERS, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4) break
    found.set(message.getUint16(at + 2, true), new Uint8Array(message.buffer, message.byteOffset + at + 4, size - 4))
  }
  const text = (type: number) => new TextDecoder().decode(found.get(type)?.subarray(0, -1) ?? new Uint8Array())
  const hex = (type: number) => [...(found.get(type) ?? [])].map((byte) => byte.toString(16).padStart(2, '0')).join(':')
  const mtu = found.get(MTU)
  return {
    name: text(NAME) as IfName,
    index: message.getInt32(INDEX_AT, true),
    isUp: (message.getUint32(FLAGS_AT, true) & IFF_UP) !== 0,
    mac: hex(ADDRESS),
    mtu: mtu ? new DataView(mtu.buffer, mtu.byteOffset).getUint32(0, true) : 0,
    ...(text(ALIAS) && { alias: text(ALIAS) }),
    ...(hex(PERMANENT) && { permanent: hex(PERMANENT) }),
  }
}
