import { netlink } from './sockets.ts'

const NETLINK_ROUTE = 0
/** A request for all there is (linux/netlink.h). */
export const NLM_F_DUMP = 0x300
const NLM_F_REQUEST = 1
const NLMSG_HEADER = 16
// The two upper bits say how to read an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_MASK = 0x3fff

/** What a request says besides: the attribute's type, and its bytes. */
export type Attribute = readonly [type: number, value: Uint8Array]
/** The attributes of a netlink message by their type, each without its header. */
export type Attributes = ReadonlyMap<number, DataView>

/** An object as rtnetlink tells of it: the struct that it begins with, and its attributes. */
export interface Answer {
  readonly body: DataView
  readonly attributes: Attributes
}

/** Asks the kernel for objects of this thread's namespace (rtnetlink(7)), without a process: `type` is the request's, `body` the struct that it begins with, then attributes. None where there is none. `isStrict` as in `netlink`. Throws Error with the errno when it cannot be asked. */
export function askRoute(type: number, body: Uint8Array, flags: number, attributes: readonly Attribute[] = [], isStrict = false): Answer[] {
  const found: Answer[] = []
  for (const answer of netlink(NETLINK_ROUTE, request(type, body, flags, attributes), isStrict)) {
    // Answers are of the type before the request's: RTM_NEWLINK is 16, RTM_GETLINK 18.
    if (answer.getUint16(4, true) === type - 2) found.push({ body: new DataView(answer.buffer, NLMSG_HEADER), attributes: attributesOf(answer, NLMSG_HEADER + body.length) })
  }
  return found
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
  let text = ''
  for (let at = 0; attribute && at < attribute.byteLength; at++) {
    const code = attribute.getUint8(at)
    if (code === 0) break
    // The first use of a decoder takes a plugin longer than all of this.
    if (code > 127) return new TextDecoder().decode(attribute).replace(/\0.*$/, '')
    text += String.fromCharCode(code)
  }
  return text
}

/** The 32-bit number of an attribute; undefined where there is none. */
export function numberOf(attribute: DataView | undefined): number | undefined {
  return attribute && attribute.byteLength >= 4 ? attribute.getUint32(0, true) : undefined
}

function request(type: number, body: Uint8Array, flags: number, attributes: readonly Attribute[]): Uint8Array {
  let size = NLMSG_HEADER + body.length
  for (const one of attributes) size += (4 + one[1].length + 3) & ~3
  const out = new Uint8Array(size)
  const view = new DataView(out.buffer)
  view.setUint32(0, out.length, true)
  view.setUint16(4, type, true)
  view.setUint16(6, NLM_F_REQUEST | flags, true)
  out.set(body, NLMSG_HEADER)
  let at = NLMSG_HEADER + body.length
  for (const one of attributes) {
    const length = 4 + one[1].length
    view.setUint16(at, length, true)
    view.setUint16(at + 2, one[0], true)
    out.set(one[1], at + 4)
    at += (length + 3) & ~3
  }
  return out
}
