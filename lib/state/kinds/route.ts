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
  /** More than one is an equal-cost multipath route. */
  readonly via: readonly Ip[]
  readonly mtu?: number
  readonly advmss?: number
  readonly priority?: number
  readonly table?: number
  readonly scope?: number
  /** The address that packets get which have none yet. */
  readonly src?: Ip
  /** The gateway is on the link, whatever the other routes say. */
  readonly onlink?: true
  /** Another link may have a route to the same place: both stay. For IPv4 the first counts: this one, or the one that was there before; those of IPv6 that have gateways the kernel makes one multipath route. */
  readonly beside?: 'prepend' | 'append'
  /** A route to that place which is there already leads elsewhere: an error. */
  readonly exclusive?: true
  /** Who made it (rt_protos); the agent's are all of its own number. */
  readonly proto?: number
  /** The nexthop object it goes through, in place of `via` and `dev` in the line; both still say where that leads. */
  readonly nhid?: number
  /** What it leads to is dropped in silence; `dev` is lo then, and `via` empty. */
  readonly blackhole?: true
}

/** Routes of one device. Several gateways make one multipath route, as two results for one destination mean. */
export const route: Handler<Route> = {
  tool: 'ip',
  title: ({ ns, dst }) => `route ${dst}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: ({ ns, dst, table, priority }) => `route ${ns} ${dst} table ${table ?? 254} metric ${priority ?? 'any'}`,
  put: (want) => [{ text: `route ${want.beside ?? 'add'} ${line(want)}`, ...(want.exclusive ? {} : { unless: /File exists/ }) }],
  drop: (want) => [{ text: `route delete ${line(want)}`, unless: /No such process|Cannot find device|(Nexthop id|FIB table) does not exist/ }],
  // In its place, with no moment in between without one.
  change: (want) => [{ text: `route replace ${line(want)}` }],
  // In a batch, `route show` lists one family: IPv4, or that of `ip -6`.
  ask: ({ dst, table }) => `${isSix(dst) ? '-6 ' : ''}route show exact ${dst} table ${table ?? 254}`,
  read(row, want) {
    const seen = row as RouteRow
    // IPv6 joins routes of several links to one place into one.
    const hops = (seen.nexthops ?? [seen]).filter(({ dev }) => dev === want.dev)
    if (hops.length === 0 || (seen.metric ?? 0) !== (want.priority ?? (isSix(want.dst) ? IP6_RT_PRIO_USER : 0))) return undefined
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
      // Of joined routes only one's is shown.
      ...(want.proto === undefined ? {} : { proto: Number(seen.protocol) }),
      ...(seen.nhid === undefined ? {} : { nhid: seen.nhid }),
      ...(want.src === undefined ? {} : { src: seen.nexthops ? want.src : (seen.prefsrc as Ip) }),
    }
  },
}

// linux/ipv6_route.h: the metric of an IPv6 route that asked for none.
const IP6_RT_PRIO_USER = 1024

// rt_scopes of iproute2; `-N` would print numbers, but for every other field too.
const SCOPES: Readonly<Record<string, number>> = { global: 0, site: 200, link: 253, host: 254, nowhere: 255 }

/** What `ip -j route show` prints of one. */
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

/** A route of the main table as it was printed, as far as the agent's have it. `proto` says what was asked for: then it is not printed. */
export function routeOf(row: RouteRow, proto?: number): Route {
  const { dst, dev, gateway, nhid, protocol, flags, metric } = row
  const six = dst.includes(':')
  const isBlackhole = row.type === 'blackhole'
  const number = proto ?? (protocol === undefined ? undefined : Number(protocol))
  return {
    kind: 'route',
    ns: 'host',
    // Of IPv6 the kernel says lo itself.
    dev: (isBlackhole ? 'lo' : (dev ?? '')) as IfName,
    dst: (dst.includes('/') ? dst : dst === 'default' ? '0.0.0.0/0' : `${dst}/${six ? 128 : 32}`) as Cidr,
    via: gateway === undefined ? [] : [gateway as Ip],
    // What IPv6 routes get that are given none (IP6_RT_PRIO_USER).
    ...(metric === undefined || (six && metric === 1024) ? {} : { priority: metric }),
    ...(flags?.includes('onlink') ? { onlink: true as const } : {}),
    ...(number === undefined ? {} : { proto: number }),
    ...(nhid === undefined ? {} : { nhid }),
    ...(isBlackhole ? { blackhole: true as const } : {}),
  }
}

function line({ dev, dst, via, mtu, advmss, priority, table, scope, src, onlink, proto, nhid, blackhole }: Route): string {
  const [first, ...more] = via
  const on = ` dev ${dev}${onlink ? ' onlink' : ''}`
  const hop = nhid !== undefined ? ` nhid ${nhid}` : more.length > 0 ? via.map((ip) => ` nexthop via ${ip}${on}`).join('') : `${first === undefined ? '' : ` via ${first}`}${on}`
  const before = [
    table === undefined ? '' : ` table ${table}`,
    priority === undefined ? '' : ` metric ${priority}`,
    scope === undefined ? '' : ` scope ${scope}`,
    mtu === undefined ? '' : ` mtu ${mtu}`,
    advmss === undefined ? '' : ` advmss ${advmss}`,
    src === undefined ? '' : ` src ${src}`,
    proto === undefined ? '' : ` proto ${proto}`,
  ].join('')
  return blackhole ? `blackhole ${dst}${before}` : `${dst}${before}${hop}`
}

function purpose({ ns, dst, via, dev, exclusive }: Route): string {
  const to = split(dst).length === 0 ? `default route, IPv${isSix(dst) ? 6 : 4}` : isHost(dst) ? `the way to ${split(dst).ip}` : `the way to ${dst}`
  const how = via.length > 1 ? `: over ${via.length} gateways at once` : via.length === 1 ? `, by the gateway ${via[0]}` : `: on the link ${dev}`
  return `${ns === 'host' ? 'to the pod: ' : ''}${to}${how}${exclusive ? '; no other may be there' : ''}`
}

function isHost(dst: Cidr): boolean {
  return split(dst).length === (isSix(dst) ? 128 : 32)
}
