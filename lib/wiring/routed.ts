import type { IpConfig, Result, RouteConfig } from '../cni/result.ts'
import { partName } from '../journal/journal.ts'
import type { Addr } from '../state/kinds/addr.ts'
import type { Element } from '../state/kinds/element.ts'
import type { Route } from '../state/kinds/route.ts'
import { hostCidr, isSix } from '../text/cidr.ts'
import { CniError, CODE } from '../text/errors.ts'
import { type Cidr, type Ip, split } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import { brief, type IfName } from '../text/values.ts'
import { defaultRoutes, gatewayOf } from './pod.ts'

// Routed pods (Calico's way): a pod has its address alone, and reaches everything through the node. The gateway is the
// same in each pod, so no address of the subnet is spent on it.

/** The type of the journal part of a routed pod. */
export const ROUTED = 'routed'

// Calico uses the first one, too. Pods that move here from Calico keep their routes.
const GATEWAYS = { 4: '169.254.1.1', 6: 'fe80::1' } as const

/** The gateway of routed pods for the family of an address. The node's end of each pod's link has it. */
export function gatewayFor(address: Ip | Cidr): Ip {
  return GATEWAYS[isSix(address) ? 6 : 4] as Ip
}

/** Whether an address is a gateway of routed pods. */
export function isRoutedGateway(ip: string): boolean {
  return ip === GATEWAYS[4] || ip === GATEWAYS[6]
}

// The gateway as an address of the node's end. A link-local address of IPv6 has the subnet of its link (RFC 4291).
function gatewayCidr(gateway: Ip): Cidr {
  return isSix(gateway) ? (`${gateway}/64` as Cidr) : hostCidr(gateway)
}

/**
 * The pool's answer for a routed pod: each address alone, with the gateway of its family. Default routes are added
 * where the pool gave none. Throws CniError 7 for a route with another gateway, which the pod cannot reach on its link.
 */
export function routed(given: Result): Result {
  const { ips = [], routes = [] } = given
  if (ips.length === 0) return given
  const known = new Set(ips.flatMap(({ gateway }) => gateway ?? []))
  const own = ips.map(
    (ip): IpConfig => ({
      ...ip,
      address: hostCidr(split(ip.address).ip),
      gateway: gatewayFor(ip.address),
    }),
  )
  const led = routes.map((route): RouteConfig => {
    if (route.gw === undefined) return route
    const gw = gatewayFor(route.dst)
    if (route.gw === gw || known.has(route.gw)) return { ...route, gw }
    throw new CniError(
      CODE.config,
      `Cannot route ${route.dst} of a routed pod through ${route.gw}`,
      `its only gateway is ${gw}; leave "gw" out, or "routed"`,
    )
  })
  return { ...given, ips: own, routes: [...led, ...defaultRoutes(own, led)] }
}

/**
 * The node's side of a veth without a bridge: gateway addresses, and a route to each address of the pod. All pods share a
 * gateway address. It is on each pod's link of the node, as an address without a subnet. So no link answers for packets
 * of another link. Pure.
 */
export function hostSide(dev: IfName, ips: readonly IpConfig[], isRouted: boolean): (Addr | Route)[] {
  const gateways = new Set(ips.map(gatewayOf))
  // The gateway of routed pods must not become the source of what the node sends to them, because it says nothing of the
  // node. The kernel takes no address with a scope narrower than the route's (inet_select_addr). So that address has the
  // scope `link`, and the route the scope `global`.
  const gatewayOn = (gateway: Ip): Addr => ({
    kind: 'addr',
    ns: 'host',
    dev,
    cidr: isRouted ? gatewayCidr(gateway) : hostCidr(gateway),
    ...(isRouted && !isSix(gateway) ? { scope: 'link' } : {}),
  })
  const addresses = new Set(ips.map(({ address }) => hostCidr(split(address).ip)))
  return [
    ...[...gateways].map(gatewayOn),
    ...[...addresses].map(
      (dst): Route => ({
        kind: 'route',
        ns: 'host',
        dev,
        dst,
        via: [],
        ...(isSix(dst) ? {} : { scope: isRouted ? GLOBAL : HOST }),
        exclusive: true,
      }),
    ),
  ]
}

// The scopes `global` and `host` (iproute2's rt_scopes). IPv6 routes have no scope.
const [GLOBAL, HOST] = [0, 254]

/**
 * The element that keeps the IPv4 gateway from everything but pods (lib/nft/gateways.nft). All routed pods share it,
 * those of IPv6 alone too: the journal tells by it that a pod is routed. Without it a neighbour of the node could send
 * to this address, because a node answers on each link for all its IPv4 addresses.
 */
export function guardedGateways(owner: Owner, ips: readonly IpConfig[]): Element[] {
  if (ips.length === 0) return []
  return [
    {
      kind: 'element',
      ns: 'host',
      set: 'gateways4',
      key: GATEWAYS[4],
      // The element outlives the pod that adds it.
      owner: brief(owner.network),
      part: partName(ROUTED, owner),
    },
  ]
}
