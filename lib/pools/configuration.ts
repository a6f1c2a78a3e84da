import * as v from 'valibot'
import type { RouteConfig } from '../cni/result.ts'
import { hasFamilies } from '../cni/versions.ts'
import { isSix } from '../text/cidr.ts'
import { ValueError } from '../text/errors.ts'
import { type Cidr, type Ip, parseIp } from '../text/ip.ts'
import { field } from '../text/shape.ts'

/**
 * An address, or undefined for an empty text. Go's net.IP reads '' as no address, and runtimes send '' for an address
 * that is not set.
 */
export const ipOrNone = field.filled(parseIp)

const uint32 = v.exactOptional(field.int(0, 0xffffffff))
const route = v.object({
  dst: field.cidr,
  gw: ipOrNone,
  mtu: uint32,
  advmss: uint32,
  priority: uint32,
  table: uint32,
  scope: v.exactOptional(field.int(0, 255)),
})
/** The key `routes` of a pool's configuration, in the form of the result. */
export const routesShape = v.optional(
  v.array(
    v.pipe(
      route,
      v.transform(({ gw, ...rest }): RouteConfig => ({ ...rest, ...(gw === undefined ? {} : { gw }) })),
    ),
  ),
  [],
)

/**
 * Throws ValueError when a result of CNI 0.1.0 or 0.2.0 could not hold these addresses, because it has one place per
 * family. `at` is the key of the addresses. `what` is the word for one of them.
 */
export function onePerFamily(cniVersion: string, addresses: readonly (Ip | Cidr)[], at: string, what: string): void {
  // An absent or empty version means 0.1.0.
  const isLimited = cniVersion === '' || hasFamilies(cniVersion)
  if (!isLimited || new Set(addresses.map(isSix)).size >= addresses.length) return
  const fact = `CNI version ${cniVersion || '0.1.0'} does not support more than 1 address per family`
  const wish = `want at most one IPv4 and one IPv6 ${what}, or cniVersion 0.3.0`
  throw new ValueError(`Cannot read ${at}: ${fact}; ${wish}`)
}
