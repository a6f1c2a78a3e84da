import { isSix } from '../cidr.ts'
import type { Cidr, Ip } from '../ip.ts'
import type { Handler, Route } from '../state.ts'

/** Routes of one device. Several gateways make one multipath route, as two results for one destination mean. */
export const route: Handler<Route> = {
  tool: 'ip',
  key: ({ ns, dst, table, priority }) => `route ${ns} ${dst} table ${table ?? 254} metric ${priority ?? 'any'}`,
  put: (want) => [{ text: `route add ${line(want)}`, unless: /File exists/ }],
  drop: (want) => [{ text: `route delete ${line(want)}`, unless: /No such process|Cannot find device/ }],
  // In a batch, `route show` lists one family: IPv4, or that of `ip -6`.
  ask: ({ dst, table }) => `${isSix(dst) ? '-6 ' : ''}route show exact ${dst} table ${table ?? 254}`,
  read(row, want) {
    const seen = row as RouteRow
    const hops = seen.nexthops ?? [seen]
    if (!hops.some(({ dev }) => dev === want.dev)) return undefined
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
      ...(want.priority === undefined || seen.metric === undefined ? {} : { priority: seen.metric }),
      ...(want.scope === undefined ? {} : { scope: SCOPES[seen.scope ?? 'global'] ?? Number(seen.scope) }),
    }
  },
}

// rt_scopes of iproute2; `-N` would print numbers, but for every other field too.
const SCOPES: Readonly<Record<string, number>> = { global: 0, site: 200, link: 253, host: 254, nowhere: 255 }

interface RouteRow {
  readonly dev?: string
  readonly gateway?: string
  readonly metric?: number
  readonly scope?: string
  readonly nexthops?: readonly { readonly dev?: string; readonly gateway?: string }[]
  readonly metrics?: readonly { readonly mtu?: number; readonly advmss?: number }[]
}

function line({ dev, dst, via, mtu, advmss, priority, table, scope }: Route): string {
  const [first, ...more] = via
  const hop = more.length > 0 ? via.map((ip) => ` nexthop via ${ip} dev ${dev}`).join('') : `${first === undefined ? '' : ` via ${first}`} dev ${dev}`
  const before = [
    table === undefined ? '' : ` table ${table}`,
    priority === undefined ? '' : ` metric ${priority}`,
    scope === undefined ? '' : ` scope ${scope}`,
    mtu === undefined ? '' : ` mtu ${mtu}`,
    advmss === undefined ? '' : ` advmss ${advmss}`,
  ].join('')
  return `${dst}${before}${hop}`
}
