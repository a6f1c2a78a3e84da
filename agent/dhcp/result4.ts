import type { Dns, Result, RouteConfig } from '../../lib/cni/result.ts'
import { networkOf } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'
import { ipOf } from './bytes.ts'
import type { Times } from './conversation.ts'
import { addressesIn, OPTION4, type Options } from './message4.ts'
import { namesIn } from './names.ts'

/** A DHCPv4 lease. */
export interface Bound4 extends Times {
  readonly address: Cidr
  readonly server: Ip
  /** The Ethernet address for packets to the server. This is the MAC of the server, or of its relay. */
  readonly via: Mac
  /** The server's options. The key is the option number, the value is base64. */
  readonly options: Readonly<Record<string, string>>
}

// Scope "link" (rt_scopes of iproute2): the destination is on the link, without a gateway.
const LINK = 253

/**
 * Converts a lease to a CNI result with address, gateway, routes and DNS.
 * An IPAM result has no field for the link's MTU. Each route has the MTU instead.
 */
export function result4({ address, options: kept }: Pick<Bound4, 'address' | 'options'>): Result {
  const decoded = (text: string) => Uint8Array.from(Buffer.from(text, 'base64'))
  const options: Options = new Map(Object.entries(kept).map(([code, text]) => [Number(code), decoded(text)]))
  const [gateway] = addressesIn(options.get(OPTION4.router))
  const mtu = mtuIn(options)
  const routes = routesIn(options, gateway).map((route) => ({ ...route, ...(mtu ? { mtu } : {}) }))
  const dns = dnsIn(options)
  return {
    ips: [{ address, ...(gateway ? { gateway } : {}) }],
    ...(routes.length > 0 ? { routes } : {}),
    ...(dns ? { dns } : {}),
  }
}

// RFC 3442: a client with classless routes (option 121) ignores static routes (option 33) and the router (option 3).
function routesIn(options: Options, gateway: Ip | undefined): RouteConfig[] {
  const classless = classlessIn(options.get(OPTION4.classless))
  if (classless.length > 0) return classless
  return [...staticIn(options.get(OPTION4.static)), ...(gateway ? [{ dst: '0.0.0.0/0' as Cidr, gw: gateway }] : [])]
}

/**
 * Decodes option 121. Each route has a prefix length, the significant bytes of the network, and a gateway.
 * Gateway 0.0.0.0 means that the network is on the link. The list ends at the first invalid or truncated route.
 */
function classlessIn(value: Uint8Array = new Uint8Array()): RouteConfig[] {
  const routes: RouteConfig[] = []
  for (let at = 0; at < value.length; ) {
    const length = value[at] as number
    const bytes = Math.ceil(length / 8)
    if (length > 32 || at + 1 + bytes + 4 > value.length) break
    const network = new Uint8Array(4)
    network.set(value.subarray(at + 1, at + 1 + bytes))
    const gw = ipOf(value.slice(at + 1 + bytes, at + 5 + bytes))
    routes.push({
      dst: networkOf(`${ipOf(network)}/${length}` as Cidr),
      ...(gw === '0.0.0.0' ? { scope: LINK } : { gw }),
    })
    at += 5 + bytes
  }
  return routes
}

/** Decodes option 33, pairs of a network and a router. The address class gives the prefix length (RFC 791). */
function staticIn(value: Uint8Array | undefined): RouteConfig[] {
  const all = addressesIn(value)
  return Array.from({ length: Math.floor(all.length / 2) }, (_, i) => {
    const [network, gw] = [all[2 * i] as Ip, all[2 * i + 1] as Ip]
    const first = Number.parseInt(network, 10)
    return { dst: networkOf(`${network}/${first < 128 ? 8 : first < 192 ? 16 : 24}` as Cidr), gw }
  })
}

function mtuIn(options: Options): number {
  const value = options.get(OPTION4.mtu)
  // RFC 2132 section 5.1: the MTU is at least 68.
  const mtu = value?.length === 2 ? (value[0] as number) * 256 + (value[1] as number) : 0
  return mtu >= 68 ? mtu : 0
}

function dnsIn(options: Options): Dns | undefined {
  const nameservers = addressesIn(options.get(OPTION4.dns))
  const domain = new TextDecoder().decode(options.get(OPTION4.domain)).replace(/\0+$/, '')
  const search = namesIn(options.get(OPTION4.search))
  const dns = {
    ...(nameservers.length > 0 && { nameservers }),
    ...(/^[\w.-]+$/.test(domain) && { domain }),
    ...(search.length > 0 && { search }),
  }
  return Object.keys(dns).length > 0 ? dns : undefined
}
