import { netlink } from './sockets.ts'

const NETLINK_ROUTE = 0
const NLM_F_REQUEST = 1
const NLMSG_HEADER = 16
// The two upper bits say how to read an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_MASK = 0x3fff

/** What a request says besides: the attribute's type, and its bytes. */
export type Attribute = readonly [type: number, value: Uint8Array]
/** The attributes of a netlink message by their type, each without its header. */
export type Attributes = ReadonlyMap<number, DataView>

/** Asks the kernel for objects of this thread's namespace (rtnetlink(7)), without a process: `type` is the request's, `body` the struct that it begins with, then attributes. Gives the body and the attributes of each, as they come; nothing where there is none. Throws Error with the errno when it cannot be asked. */
export function* askRoute(type: number, body: Uint8Array, flags: number, attributes: readonly Attribute[] = []): Generator<{ readonly body: DataView; readonly attributes: Attributes }> {
  for (const answer of netlink(NETLINK_ROUTE, request(type, body, flags, attributes))) {
    // Answers are of the type before the request's: RTM_NEWLINK is 16, RTM_GETLINK 18.
    if (answer.getUint16(4, true) !== type - 2) continue
    // Answers share one buffer, which the next overwrites: what is kept is copied.
    const inner = new DataView(answer.buffer.slice(answer.byteOffset + NLMSG_HEADER, answer.byteOffset + answer.byteLength) as ArrayBuffer)
    yield { body: inner, attributes: attributesOf(inner, body.length) }
  }
}

/** The attributes that begin at an offset. */
export function attributesOf(message: DataView, from = 0): Attributes {
  const found = new Map<number, DataView>()
  for (let at = from, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4 || at + size > message.byteLength) break
    found.set(message.getUint16(at + 2, true) & TYPE_MASK, new DataView(message.buffer, message.byteOffset + at + 4, size - 4))
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

function request(type: number, body: Uint8Array, flags: number, attributes: readonly Attribute[]): Uint8Array {
  const sizes = attributes.map(([, { length }]) => (4 + length + 3) & ~3)
  const out = new Uint8Array(sizes.reduce((sum, size) => sum + size, NLMSG_HEADER + body.length))
  const view = new DataView(out.buffer)
  view.setUint32(0, out.length, true)
  view.setUint16(4, type, true)
  view.setUint16(6, NLM_F_REQUEST | flags, true)
  out.set(body, NLMSG_HEADER)
  let at = NLMSG_HEADER + body.length
  for (const [i, [kind, value]] of attributes.entries()) {
    view.setUint16(at, 4 + value.length, true)
    view.setUint16(at + 2, kind, true)
    out.set(value, at + 4)
    at += sizes[i] ?? 0
  }
  return out
}
