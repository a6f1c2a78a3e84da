import { isSix } from '../cidr.ts'
import type { Cidr, Ip } from '../ip.ts'
import type { Handler, Route } from '../state.ts'

/** Routes of one device. Several gateways make one multipath route, as two results for one destination mean. */
export const route: Handler<Route> = {
  tool: 'ip',
  key: ({ ns, dst, table, priority }) => `route ${ns} ${dst} table ${table ?? 254} metric ${priority ?? 'any'}`,
  put: (want) => [{ text: `route ${want.append ? 'append' : 'add'} ${line(want)}`, ...(want.exclusive ? {} : { unless: /File exists/ }) }],
  drop: (want) => [{ text: `route delete ${line(want)}`, unless: /No such process|Cannot find device/ }],
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
      ...(want.src === undefined ? {} : { src: seen.nexthops ? want.src : (seen.prefsrc as Ip) }),
    }
  },
}

// linux/ipv6_route.h: the metric of an IPv6 route that asked for none.
const IP6_RT_PRIO_USER = 1024

// rt_scopes of iproute2; `-N` would print numbers, but for every other field too.
const SCOPES: Readonly<Record<string, number>> = { global: 0, site: 200, link: 253, host: 254, nowhere: 255 }

interface RouteRow {
  readonly dev?: string
  readonly gateway?: string
  readonly metric?: number
  readonly scope?: string
  readonly prefsrc?: string
  readonly nexthops?: readonly { readonly dev?: string; readonly gateway?: string }[]
  readonly metrics?: readonly { readonly mtu?: number; readonly advmss?: number }[]
}

function line({ dev, dst, via, mtu, advmss, priority, table, scope, src, onlink }: Route): string {
  const [first, ...more] = via
  const on = ` dev ${dev}${onlink ? ' onlink' : ''}`
  const hop = more.length > 0 ? via.map((ip) => ` nexthop via ${ip}${on}`).join('') : `${first === undefined ? '' : ` via ${first}`}${on}`
  const before = [
    table === undefined ? '' : ` table ${table}`,
    priority === undefined ? '' : ` metric ${priority}`,
    scope === undefined ? '' : ` scope ${scope}`,
    mtu === undefined ? '' : ` mtu ${mtu}`,
    advmss === undefined ? '' : ` advmss ${advmss}`,
    src === undefined ? '' : ` src ${src}`,
  ].join('')
  return `${dst}${before}${hop}`
}
