import { type Attributes, attributesOf } from './netlink-attributes.ts'
import { netlink } from './sockets.ts'

const NETLINK_ROUTE = 0
/** A request for all there is (linux/netlink.h). */
export const NLM_F_DUMP = 0x300
const NLM_F_REQUEST = 1
const NLMSG_HEADER = 16
/** What a request says besides: the attribute's type, and its bytes. */
export type Attribute = readonly [type: number, value: Uint8Array]

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
    if (answer.getUint16(4, true) === type - 2) found.push({ body: new DataView(answer.buffer, answer.byteOffset + NLMSG_HEADER, body.length), attributes: attributesOf(answer, NLMSG_HEADER + body.length) })
  }
  return found
}

/** A netlink message: the header, the struct that it begins with, and attributes, each up to the next multiple of four. */
export function request(type: number, body: Uint8Array, flags: number, attributes: readonly Attribute[]): Uint8Array {
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
