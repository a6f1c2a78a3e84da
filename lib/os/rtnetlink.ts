import { type Attributes, attributesOf } from './netlink-attributes.ts'
import { netlink } from './sockets.ts'

const NETLINK_ROUTE = 0
/** The flags of a request for all objects (linux/netlink.h). */
export const NLM_F_DUMP = 0x300
const NLM_F_REQUEST = 1
const NLMSG_HEADER = 16
/** An attribute of a request: its type and its bytes. */
export type Attribute = readonly [type: number, value: Uint8Array]

/** An object in an rtnetlink answer: its leading struct and its attributes. */
export interface Answer {
  readonly body: DataView
  readonly attributes: Attributes
}

/**
 * Asks the kernel for objects of this thread's namespace (rtnetlink(7)), without a subprocess. `type` is the request's
 * type, `body` its leading struct. `absent`, `isStrict` and the errors are those of `netlink`.
 */
export function askRoute(
  type: number,
  body: Uint8Array,
  flags: number,
  attributes: readonly Attribute[] = [],
  absent: readonly number[] = [],
  isStrict = false,
): Answer[] {
  const found: Answer[] = []
  for (const answer of netlink(NETLINK_ROUTE, request(type, body, flags, attributes), absent, isStrict)) {
    // The type of an answer is the request's type minus 2: RTM_NEWLINK is 16, RTM_GETLINK is 18.
    if (answer.getUint16(4, true) === type - 2)
      found.push({
        body: new DataView(answer.buffer, answer.byteOffset + NLMSG_HEADER, body.length),
        attributes: attributesOf(answer, NLMSG_HEADER + body.length),
      })
  }
  return found
}

/** A netlink message: header, leading struct and attributes. Attributes are padded to a multiple of four bytes. */
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
