import { isSix } from '../../text/cidr.ts'
import { type Cidr, type Ip, split } from '../../text/ip.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** A route through one link. */
export interface Route {
  readonly kind: 'route'
  readonly ns: Netns
  readonly dev: IfName
  readonly dst: Cidr
  /** The gateways. Several gateways make an equal-cost multipath route. */
  readonly via: readonly Ip[]
  readonly mtu?: number
  readonly advmss?: number
  readonly priority?: number
  readonly table?: number
  readonly scope?: number
  /** The source address of packets that have no source address yet. */
  readonly src?: Ip
  /** The kernel takes the gateway as reachable on the link and does not check it against other routes. */
  readonly onlink?: true
  /**
   * Another link may have a route to the same destination. Both routes stay. With IPv4 the first route counts:
   * `prepend` puts this route first, `append` the existing one. The kernel merges IPv6 routes with gateways into one
   * multipath route.
   */
  readonly position?: 'prepend' | 'append'
  /** An existing route to the same destination is an error. */
  readonly exclusive?: true
  /** The program that made the route (rt_protos). All routes of the agent have the agent's number. */
  readonly proto?: number
  /**
   * The nexthop object of the route. The line has its id instead of `via` and `dev`. `via` and `dev` still say where
   * the object leads.
   */
  readonly nhid?: number
  /** Packets to the destination are dropped without an answer. Then `dev` is lo and `via` is empty. */
  readonly blackhole?: true
  /** The same, but the sender is told (ICMP). */
  readonly unreachable?: true
}

/** Routes of one device. Several gateways make one multipath route, like two results for the same destination. */
export const route: Handler<Route> = {
  tool: 'ip',
  title: ({ ns, dst }) => `route ${dst}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: ({ ns, dst, table, priority }) => `route ${ns} ${dst} table ${table ?? 254} metric ${priority ?? 'any'}`,
  put: (want) => [
    { text: `route ${want.position ?? 'add'} ${line(want)}`, ...(want.exclusive ? {} : { unless: /File exists/ }) },
  ],
  drop: (want) => [{ text: `route delete ${line(want)}`, unless: GONE }],
  // Replaces the route at once, so that there is no moment without a route.
  change: (want) => [{ text: `route replace ${line(want)}` }],
  // In a batch, `route show` lists one family: IPv4, or the family of `ip -6`.
  ask: ({ dst, table }) => `${isSix(dst) ? '-6 ' : ''}route show exact ${dst} table ${table ?? 254}`,
  read(row, want) {
    const seen = row as RouteRow
    // The kernel joins IPv6 routes of several links to the same destination into one row.
    const hops = (seen.nexthops ?? [seen]).filter(({ dev }) => dev === want.dev)
    if (hops.length === 0 || (seen.metric ?? 0) !== (want.priority ?? (isSix(want.dst) ? IP6_RT_PRIO_USER : 0)))
      return undefined
    const metrics = seen.metrics?.[0]
    return {
      kind: 'route',
      ns: want.ns,
      dev: want.dev,
      dst: want.dst as Cidr,
      via: hops.flatMap(({ gateway }) => (gateway === undefined ? [] : [gateway as Ip])),
      ...(metrics?.mtu === undefined ? {} : { mtu: metrics.mtu }),
      ...(metrics?.advmss === undefined ? {} : { advmss: metrics.advmss }),
      ...(want.table === undefined ? {} : { table: want.table }),
      ...(want.priority === undefined ? {} : { priority: want.priority }),
      ...(want.scope === undefined ? {} : { scope: SCOPES[seen.scope ?? 'global'] ?? Number(seen.scope) }),
      // For joined routes the kernel shows the protocol of one route only.
      ...(want.proto === undefined ? {} : { proto: Number(seen.protocol) }),
      ...(seen.nhid === undefined ? {} : { nhid: seen.nhid }),
      ...(want.src === undefined ? {} : { src: seen.nexthops ? want.src : (seen.prefsrc as Ip) }),
    }
  },
}

const GONE = /No such process|Cannot find device|(Nexthop id|FIB table) does not exist/

// linux/ipv6_route.h: the default metric of an IPv6 route.
const IP6_RT_PRIO_USER = 1024

// rt_scopes of iproute2. `-N` prints numbers, and for every other field too.
const SCOPES: Readonly<Record<string, number>> = { global: 0, site: 200, link: 253, host: 254, nowhere: 255 }

/** One route in the output of `ip -j route show`. */
export interface RouteRow {
  readonly dst: string
  readonly type?: string
  readonly dev?: string
  readonly gateway?: string
  readonly nhid?: number
  readonly protocol?: string
  readonly flags?: readonly string[]
  readonly metric?: number
  readonly scope?: string
  readonly prefsrc?: string
  readonly nexthops?: readonly { readonly dev?: string; readonly gateway?: string }[]
  readonly metrics?: readonly { readonly mtu?: number; readonly advmss?: number }[]
}

/**
 * Converts a printed row of the main table to a Route, with the keys that the agent uses. `proto` is the protocol that
 * `ip` was asked for, because then `ip` does not print it.
 */
export function routeOf(row: RouteRow, proto?: number): Route {
  const { dst, dev, gateway, nhid, protocol, flags, metric } = row
  const mtu = row.metrics?.[0]?.mtu
  const six = dst.includes(':')
  const [isBlackhole, isUnreachable] = [row.type === 'blackhole', row.type === 'unreachable']
  const number = proto ?? (protocol === undefined ? undefined : Number(protocol))
  return {
    kind: 'route',
    ns: 'host',
    // For IPv6 the kernel itself says lo.
    dev: (isBlackhole || isUnreachable ? 'lo' : (dev ?? '')) as IfName,
    dst: (dst.includes('/') ? dst : dst === 'default' ? '0.0.0.0/0' : `${dst}/${six ? 128 : 32}`) as Cidr,
    via: gateway === undefined ? [] : [gateway as Ip],
    ...(mtu === undefined ? {} : { mtu }),
    // IPv6 routes without a metric get this default (IP6_RT_PRIO_USER).
    ...(metric === undefined || (six && metric === 1024) ? {} : { priority: metric }),
    ...(flags?.includes('onlink') ? { onlink: true as const } : {}),
    ...(number === undefined ? {} : { proto: number }),
    ...(nhid === undefined ? {} : { nhid }),
    ...(isBlackhole ? { blackhole: true as const } : {}),
    ...(isUnreachable ? { unreachable: true as const } : {}),
  }
}

function line(want: Route): string {
  const { dst, mtu, advmss, priority, table, scope, src, proto, blackhole, unreachable } = want
  const before = [
    table === undefined ? '' : ` table ${table}`,
    priority === undefined ? '' : ` metric ${priority}`,
    scope === undefined ? '' : ` scope ${scope}`,
    mtu === undefined ? '' : ` mtu ${mtu}`,
    advmss === undefined ? '' : ` advmss ${advmss}`,
    src === undefined ? '' : ` src ${src}`,
    proto === undefined ? '' : ` proto ${proto}`,
  ].join('')
  if (unreachable) return `unreachable ${dst}${before}`
  return blackhole ? `blackhole ${dst}${before}` : `${dst}${before}${hopsOf(want)}`
}

function hopsOf({ dev, via, onlink, nhid }: Route): string {
  if (nhid !== undefined) return ` nhid ${nhid}`
  const on = ` dev ${dev}${onlink ? ' onlink' : ''}`
  if (via.length > 1) return via.map((ip) => ` nexthop via ${ip}${on}`).join('')
  return via[0] === undefined ? on : ` via ${via[0]}${on}`
}

function purpose({ ns, dst, via, dev, exclusive }: Route): string {
  const { ip, length } = split(dst)
  const to = length === 0 ? `default route, IPv${isSix(dst) ? 6 : 4}` : `the way to ${isHost(dst) ? ip : dst}`
  const single = via[0] === undefined ? `: on the link ${dev}` : `, by the gateway ${via[0]}`
  const how = via.length > 1 ? `: over ${via.length} gateways at once` : single
  return `${ns === 'host' ? 'to the pod: ' : ''}${to}${how}${exclusive ? '; no other may be there' : ''}`
}

function isHost(dst: Cidr): boolean {
  return split(dst).length === (isSix(dst) ? 128 : 32)
}
