import type { IpConfig, Result, RouteConfig } from '../cni/result.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Route } from '../state/kinds/route.ts'
import type { Resource } from '../state/resource.ts'
import { contains, hostCidr, isSix, networkOf } from '../text/cidr.ts'
import { type Cidr, format, type Ip, split } from '../text/ip.ts'
import type { IfName, Netns } from '../text/values.ts'

/**
 * The pod's side of an attachment with addresses: sysctls before the link comes up, addresses, link, routes. The final
 * state is that of pkg/ipam ConfigureIface. With `dad`, duplicate address detection stays on. When `dad` is undefined
 * and there is only a link-local address, the setting stays unchanged. With `routed`, only the gateways are on the
 * link. All other addresses, also in the pod's own subnet, are reached through them (ptp).
 */
export function podSide(link: Link, given: Result, dad: boolean | undefined, routed = false): Resource[] {
  const { ns, name: dev } = link
  const { ips = [] } = given
  const six = ips.some(({ address }) => isSix(address))
  const set = (name: string, value: string): Resource => ({ kind: 'sysctl', ns, name, value, optional: true })
  const all: Resource[] = []
  if (six || dad !== undefined) all.push(set(`ipv6/conf/${dev}/accept_dad`, dad ? '1' : '0'))
  if (dad) all.push(set(`ipv6/conf/${dev}/enhanced_dad`, '1'))
  // Neighbours learn of a reused address when the link comes up. A port of a bridge does not forward yet and loses that.
  // announcement.ts has the kernel send it again.
  all.push(set(`ipv4/conf/${dev}/arp_notify`, '1'))
  all.push(set(`ipv6/conf/${dev}/ndisc_notify`, '1'))
  if (six) {
    all.push(set('ipv6/conf/lo/disable_ipv6', '0'))
    all.push(set(`ipv6/conf/${dev}/disable_ipv6`, '0'))
    all.push(set(`ipv6/conf/${dev}/keep_addr_on_down`, '1'))
  }
  const noRoute = routed ? { noprefixroute: true as const } : {}
  for (const { address: cidr } of ips)
    all.push({ kind: 'addr', ns, dev, cidr, ...(dad && isSix(cidr) ? { dad } : {}), ...noRoute })
  all.push(link)
  const asked = routes(ns, dev, given)
  if (routed) all.push(...gatewayRoutes(ns, dev, ips), ...asked.map((route) => behind(route, ips)))
  else all.push(...asked)
  return all
}

/** The gateway of an address: the given one, else the first address of its subnet (upstream's calcGatewayIP). */
export function gatewayOf({ address, gateway }: IpConfig): Ip {
  const { family, first } = split(address)
  return gateway ?? format({ family, bits: first + 1n })
}

// Each gateway is on the link, and each subnet is behind its gateway. The reference ptp has the same routes after it
// deletes the kernel's route.
function gatewayRoutes(ns: Netns, dev: IfName, ips: readonly IpConfig[]): Route[] {
  const made = new Map<Cidr, Route>()
  for (const ip of ips) {
    const { ip: src } = split(ip.address)
    const [gateway, subnet] = [hostCidr(gatewayOf(ip)), networkOf(ip.address)]
    const add = (dst: Cidr, more: Pick<Route, 'via' | 'scope'>) =>
      made.has(dst) || made.set(dst, { kind: 'route', ns, dev, dst, ...more, src, position: 'append' })
    // The kernel makes the route to the link-local addresses of IPv6.
    if (!gateway.startsWith('fe80:')) add(gateway, { via: [], ...(isSix(gateway) ? {} : { scope: LINK }) })
    // An address with the full prefix length has no further subnet.
    if (subnet !== hostCidr(src)) add(subnet, { via: [gatewayOf(ip)] })
  }
  return [...made.values()]
}

// The rt_scopes of iproute2. IPv6 has none.
const LINK = 253

// Further gateways of a subnet get `onlink`, as if the subnet were on the link.
function behind(route: Route, ips: readonly IpConfig[]): Route {
  const gateways = ips.map(gatewayOf)
  const further = route.via.some((via) => !gateways.includes(via) && ips.some(({ address }) => contains(address, via)))
  return { ...route, ...(further ? { onlink: true } : {}) }
}

/**
 * A default route for each family that has an address, unless the pool gave one. As upstream, the pool's default route
 * counts when it names its gateway. It also counts when it has no table and no priority, like the one added here.
 */
export function defaultRoutes(ips: readonly IpConfig[], routes: readonly RouteConfig[]): RouteConfig[] {
  const counts = ({ gw, table, priority }: RouteConfig) => gw !== undefined || (table === undefined && !priority)
  const served = (six: boolean) =>
    routes.some((one) => isSix(one.dst) === six && split(one.dst).length === 0 && counts(one))
  const firsts = [false, true].flatMap((six) => ips.find(({ address }) => isSix(address) === six) ?? [])
  return firsts
    .filter(({ address }) => !served(isSix(address)))
    .map((ip) => ({ dst: (isSix(ip.address) ? '::/0' : '0.0.0.0/0') as Cidr, gw: gatewayOf(ip) }))
}

// A route without a gateway takes the first gateway of its family. Two gateways for one destination make one multipath
// route. The routes of a pod's latest link come first, as with the reference plugins (netlink's NLM_F_CREATE alone).
// When that link goes, the routes of the other links count again.
function routes(ns: Netns, dev: IfName, { ips = [], routes = [] }: Result): Route[] {
  const gateway = (dst: Cidr) => ips.find((ip) => ip.gateway !== undefined && isSix(ip.address) === isSix(dst))?.gateway
  const made = new Map<string, Route>()
  for (const { dst, gw, ...rest } of routes) {
    // A destination on the link has no gateway, whatever the family's gateway is.
    const via = gw ?? (rest.scope !== undefined && rest.scope >= LINK ? undefined : gateway(dst))
    const key = JSON.stringify([dst, rest])
    const before = made.get(key)
    if (before && (via === undefined || before.via.includes(via))) continue
    made.set(key, {
      kind: 'route',
      ns,
      dev,
      dst: networkOf(dst),
      ...known(rest),
      via: [...(before?.via ?? []), ...(via === undefined ? [] : [via])],
      position: 'prepend',
    })
  }
  return [...made.values()]
}

// Zero means "not given" for the attributes that Go leaves out when they are zero. A table or scope of zero is a value.
function known(given: Omit<RouteConfig, 'dst' | 'gw'>): Pick<Route, 'mtu' | 'advmss' | 'priority' | 'table' | 'scope'> {
  const { mtu, advmss, priority, table, scope } = given
  return {
    ...(mtu ? { mtu } : {}),
    ...(advmss ? { advmss } : {}),
    ...(priority ? { priority } : {}),
    ...(table === undefined ? {} : { table }),
    ...(scope === undefined ? {} : { scope }),
  }
}
