import { netlink } from './libc.ts'

const NETLINK_ROUTE = 0
const NLM_F_REQUEST = 1
const NLMSG_ERROR = 2
const NLMSG_HEADER = 16
// The two upper bits say how to read an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_MASK = 0x3fff

/** The attributes of a netlink message by their type, each without its header. */
export type Attributes = ReadonlyMap<number, DataView>

/** Asks the kernel for objects of this thread's namespace (rtnetlink(7)), without a process: `type` is the request's, `body` the struct that it begins with, then a text attribute where only one object is wanted. Gives the body and the attributes of each, as they come; nothing where there is none. */
export function* askRoute(type: number, body: Uint8Array, flags: number, named?: readonly [type: number, text: string]): Generator<{ readonly body: DataView; readonly attributes: Attributes }> {
  for (const answer of netlink(NETLINK_ROUTE, request(type, body, flags, named))) {
    const kind = answer.getUint16(4, true)
    // Answers are of the type before the request's: RTM_NEWLINK is 16, RTM_GETLINK 18.
    if (kind === NLMSG_ERROR || kind !== type - 2) continue
    const inner = view(answer, NLMSG_HEADER, answer.byteLength - NLMSG_HEADER)
    yield { body: inner, attributes: attributesOf(inner, body.length) }
  }
}

/** The attributes that begin at an offset. */
export function attributesOf(message: DataView, from = 0): Attributes {
  const found = new Map<number, DataView>()
  for (let at = from, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4) break
    found.set(message.getUint16(at + 2, true) & TYPE_MASK, view(message, at + 4, size - 4))
  }
  return found
}

/** The text of an attribute, without its NUL; empty where there is none. */
export function textOf(attribute: DataView | undefined): string {
  if (!attribute) return ''
  return new TextDecoder().decode(new Uint8Array(attribute.buffer, attribute.byteOffset, attribute.byteLength)).replace(/\0.*$/, '')
}

/** The 32-bit number of an attribute; undefined where there is none. */
export function numberOf(attribute: DataView | undefined): number | undefined {
  return attribute && attribute.byteLength >= 4 ? attribute.getUint32(0, true) : undefined
}

function request(type: number, body: Uint8Array, flags: number, named?: readonly [type: number, text: string]): Uint8Array {
  const text = named ? new TextEncoder().encode(`${named[1]}\0`) : undefined
  const length = NLMSG_HEADER + body.length + (text ? (4 + text.length + 3) & ~3 : 0)
  const out = new Uint8Array(length)
  const head = new DataView(out.buffer)
  head.setUint32(0, length, true)
  head.setUint16(4, type, true)
  head.setUint16(6, NLM_F_REQUEST | flags, true)
  out.set(body, NLMSG_HEADER)
  if (named && text) {
    head.setUint16(NLMSG_HEADER + body.length, 4 + text.length, true)
    head.setUint16(NLMSG_HEADER + body.length + 2, named[0], true)
    out.set(text, NLMSG_HEADER + body.length + 4)
  }
  return out
}

// A generator's messages share one buffer, which the next answer overwrites: what is kept is copied.
function view(of: DataView, at: number, length: number): DataView {
  const start = of.byteOffset + at
  return new DataView(of.buffer.slice(start, start + Math.max(0, Math.min(length, of.byteLength - at))) as ArrayBuffer)
}
