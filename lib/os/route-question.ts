import { bytesOf, type Ip } from '../text/ip.ts'
import { addressOf } from './link-addresses.ts'
import { NoAnswer } from './netlink-answer.ts'
import { attributesOf, numberOf } from './netlink-attributes.ts'
import { NO_ROUTE } from './route-tables.ts'
import { type Attribute, request } from './rtnetlink.ts'
import { Connected } from './sockets.ts'

const [NETLINK_ROUTE, RTM_GETROUTE] = [0, 26]
const [NLMSG_HEADER, RTMSG_BYTES, RTM_TYPE] = [16, 12, 7]
const [AF_INET, AF_INET6] = [2, 10]
const [RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_VIA] = [1, 2, 3, 4, 5, 7, 18]
// linux/rtnetlink.h, RTN_*.
const TYPES: Readonly<Record<number, string>> = { 1: 'unicast', 2: 'local', 6: 'blackhole', 7: 'unreachable' }

/** A packet to be routed. With `iif` it comes in by that link, and the kernel checks it as if it did. */
export interface RouteQuestion {
  readonly to: Ip
  readonly from?: Ip
  /** The index of a link. */
  readonly iif?: number
}
/** Where the kernel sends it, or the errno with which it says that no route leads there. */
export type RouteAnswer =
  | { readonly index: number; readonly type: string; readonly via?: Ip; readonly source?: Ip }
  | { readonly errno: number }

/**
 * Asks the kernel for the route of a packet in this thread's namespace (`ip route get`), in microseconds. Throws
 * NoAnswer.
 */
export function askForRoute({ to, from, iif }: RouteQuestion): RouteAnswer {
  const address = bytesOf(to)
  const length = address.length * 8
  const body = new Uint8Array(RTMSG_BYTES)
  body.set([address.length === 4 ? AF_INET : AF_INET6, length, from === undefined ? 0 : length])
  const attributes: Attribute[] = [
    [RTA_DST, address],
    ...(from === undefined ? [] : [[RTA_SRC, bytesOf(from)] as const]),
    ...(iif === undefined ? [] : [[RTA_IIF, new Uint8Array(Uint32Array.of(iif).buffer)] as const]),
  ]
  const asked = request(RTM_GETROUTE, body, 0, attributes)
  const socket = new Connected(NETLINK_ROUTE)
  let [answer, errno]: [DataView | undefined, number] = [undefined, 0]
  try {
    const whole = socket.ask(asked)
    ;[[answer], errno] = [whole.messages, whole.errno]
  } finally {
    socket.close()
  }
  if (answer === undefined) {
    if (!NO_ROUTE.includes(errno)) throw new NoAnswer(NETLINK_ROUTE, asked, errno)
    return { errno }
  }
  const found = attributesOf(answer, NLMSG_HEADER + RTMSG_BYTES)
  const other = found.get(RTA_VIA)
  // RTA_VIA is a gateway of the other family: two bytes of family, then the address.
  const via =
    addressOf(found.get(RTA_GATEWAY)) ??
    addressOf(other && new DataView(other.buffer, other.byteOffset + 2, other.byteLength - 2))
  const source = addressOf(found.get(RTA_PREFSRC))
  return {
    index: numberOf(found.get(RTA_OIF)) ?? 0,
    type: TYPES[answer.getUint8(NLMSG_HEADER + RTM_TYPE)] ?? 'other',
    ...(via !== undefined && { via }),
    ...(source !== undefined && { source }),
  }
}
