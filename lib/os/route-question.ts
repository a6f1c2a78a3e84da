import { bytesOf, type Ip } from '../text/ip.ts'
import { addressOf } from './link-addresses.ts'
import { attributesOf, numberOf } from './netlink-attributes.ts'
import { type Attribute, request } from './rtnetlink.ts'
import { netlink } from './sockets.ts'

const [NETLINK_ROUTE, NLMSG_ERROR, RTM_GETROUTE] = [0, 2, 26]
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
/** Where the kernel sends it, or the errno with which it refuses. */
export type RouteAnswer =
  | { readonly index: number; readonly type: string; readonly via?: Ip; readonly source?: Ip }
  | { readonly errno: number }

/** Asks the kernel for the route of a packet in this thread's namespace (`ip route get`), in microseconds. */
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
  const [answer] = netlink(NETLINK_ROUTE, request(RTM_GETROUTE, body, 0, attributes))
  if (answer === undefined) return { errno: 0 }
  if (answer.getUint16(4, true) === NLMSG_ERROR) return { errno: -answer.getInt32(NLMSG_HEADER, true) }
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
