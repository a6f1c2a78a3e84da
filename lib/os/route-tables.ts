import { bytesOf, type Cidr, type Ip } from '../text/ip.ts'
import type { IfName } from '../text/values.ts'
import { addressOf } from './link-addresses.ts'
import { type Attributes, attributesOf, numberOf } from './netlink-attributes.ts'
import { askRoute, NLM_F_DUMP } from './rtnetlink.ts'

const [AF_INET, AF_INET6] = [2, 10]
// linux/rtnetlink.h and linux/fib_rules.h
const [RTM_GETROUTE, RTM_GETRULE] = [26, 34]
const [RTMSG_BYTES, RULE_BYTES] = [12, 12]
const [RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_TABLE, RTA_VIA] = [
  1, 4, 5, 6, 7, 8, 9, 15, 18,
]
const [FRA_SRC, FRA_PRIORITY, FRA_TABLE] = [2, 6, 15]
const [RTAX_MTU, RTAX_ADVMSS] = [2, 8]
const RTN_UNICAST = 1
const [RTM_F_CLONED, RTNH_F_ONLINK] = [0x200, 4]

/** A rule of policy routing: packets from this address use the table. */
export interface TableRule {
  readonly from: Ip
  readonly table: number
  readonly priority: number
}

/**
 * The routing rules of this thread's namespace, in both families. `from` is empty for a rule that does not select one
 * single source address. Throws NoAnswer.
 */
export function rulesNow(): TableRule[] {
  return askRoute(RTM_GETRULE, new Uint8Array(RULE_BYTES), NLM_F_DUMP).flatMap(({ body, attributes }) => {
    const family = familyOf(body)
    if (!family) return []
    const isHost = body.getUint8(2) === (family === 4 ? 32 : 128)
    const from = (isHost ? addressOf(attributes.get(FRA_SRC)) : undefined) ?? ('' as Ip)
    const table = numberOf(attributes.get(FRA_TABLE)) ?? body.getUint8(4)
    return [{ from, table, priority: numberOf(attributes.get(FRA_PRIORITY)) ?? 0 }]
  })
}

/**
 * A unicast route with its table. `dev` is empty when the route does not belong to the requested link alone. Then
 * gateways and details are missing.
 */
export interface TableRoute extends Details {
  readonly dst: Cidr
  /** The gateways. Empty when the destination is on the link. */
  readonly via: readonly Ip[]
  readonly dev: IfName
  readonly table: number
  readonly onlink?: true
}

/**
 * The unicast routes of this thread's namespace, of all tables and both families. `index` and `dev` are the index and
 * the name of the requested link. Only the routes through this link have all fields. Throws NoAnswer.
 */
export function routesNow(index: number, dev: IfName): TableRoute[] {
  const answers = askRoute(RTM_GETROUTE, new Uint8Array(RTMSG_BYTES), NLM_F_DUMP)
  return answers.flatMap(({ body, attributes }): TableRoute[] => {
    const family = familyOf(body)
    if (!family || body.getUint8(7) !== RTN_UNICAST || body.getUint32(8, true) & RTM_F_CLONED) return []
    const table = numberOf(attributes.get(RTA_TABLE)) ?? body.getUint8(4)
    const any = family === 4 ? '0.0.0.0' : '::'
    const dst = `${addressOf(attributes.get(RTA_DST)) ?? any}/${body.getUint8(1)}` as Cidr
    const all = hops(body, attributes)
    const ours = all.filter((hop) => hop.index === index)
    // IPv6 merges routes of several links to one destination into one multipath route. Each hop is still its own route.
    const isShared = family === 4 && ours.length < all.length
    if (ours.length === 0 || isShared || all.some(({ strange }) => strange))
      return [{ dev: '' as IfName, dst, via: [], table }]
    const via = ours.flatMap((hop) => hop.via ?? [])
    const onlink = ours.some((hop) => hop.onlink) ? { onlink: true as const } : {}
    return [{ dev, dst, via, ...details(family, body, attributes), ...onlink, table }]
  })
}

/**
 * The errnos with which the kernel says that no route leads to an address: EACCES (prohibit), EXDEV (the wrong link),
 * EINVAL (blackhole), ENETDOWN, ENETUNREACH and EHOSTUNREACH.
 */
export const NO_ROUTE = [13, 18, 22, 100, 101, 113]

/**
 * The index of the link by which this thread's namespace sends to an address. Undefined when no route leads there.
 * Throws NoAnswer.
 */
export function linkTowards(ip: Ip): number | undefined {
  const address = bytesOf(ip)
  const body = new Uint8Array(RTMSG_BYTES)
  body.set([address.length === 4 ? AF_INET : AF_INET6, 8 * address.length])
  const [route] = askRoute(RTM_GETROUTE, body, 0, [[RTA_DST, address]], NO_ROUTE)
  return route && numberOf(route.attributes.get(RTA_OIF))
}

interface Details {
  readonly src?: Ip
  readonly scope?: number
  readonly priority?: number
  readonly mtu?: number
  readonly advmss?: number
  readonly proto?: number
}

function details(family: 4 | 6, body: DataView, attributes: Attributes): Details {
  const src = addressOf(attributes.get(RTA_PREFSRC))
  const priority = numberOf(attributes.get(RTA_PRIORITY))
  const metrics = attributes.get(RTA_METRICS)
  const inner = metrics && attributesOf(metrics)
  const [mtu, advmss] = [numberOf(inner?.get(RTAX_MTU)), numberOf(inner?.get(RTAX_ADVMSS))]
  return {
    ...(src && { src }),
    ...(family === 4 && { scope: body.getUint8(6) }),
    ...(priority && { priority }),
    ...(mtu && { mtu }),
    ...(advmss && { advmss }),
    proto: body.getUint8(5),
  }
}

interface Hop {
  readonly index: number
  readonly via: Ip | undefined
  readonly onlink: boolean
  /** The gateway is of the other family. */
  readonly strange: boolean
}

function hops(body: DataView, attributes: Attributes): Hop[] {
  const hop = (index: number, flags: number, of: Attributes): Hop => ({
    index,
    via: addressOf(of.get(RTA_GATEWAY)),
    onlink: (flags & RTNH_F_ONLINK) !== 0,
    strange: of.has(RTA_VIA),
  })
  const several = attributes.get(RTA_MULTIPATH)
  if (!several) return [hop(numberOf(attributes.get(RTA_OIF)) ?? 0, body.getUint32(8, true), attributes)]
  const found: Hop[] = []
  // struct rtnexthop: length, flags, weight, index, then attributes.
  for (let at = 0, size = 0; at + 8 <= several.byteLength; at += (size + 3) & ~3) {
    size = several.getUint16(at, true)
    if (size < 8) break
    const inner = new DataView(several.buffer, several.byteOffset + at, Math.min(size, several.byteLength - at))
    found.push(hop(several.getInt32(at + 4, true), several.getUint8(at + 2), attributesOf(inner, 8)))
  }
  return found
}

function familyOf(body: DataView): 4 | 6 | undefined {
  const family = body.getUint8(0)
  return family === AF_INET ? 4 : family === AF_INET6 ? 6 : undefined
}
