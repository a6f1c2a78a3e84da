import { readSysctl } from '../os/sysctls.ts'
import { isSix } from '../text/cidr.ts'
import type { Cidr } from '../text/ip.ts'

/**
 * The sysctls below net/ that stop the node from forwarding packets of pods with these gateway addresses, one per
 * address family. Empty when the node forwards.
 */
export function notForwarding(gateways: readonly Cidr[]): string[] {
  const on = (six: boolean) => gateways.some((one) => isSix(one) === six)
  return [...(on(false) ? ['ipv4/ip_forward'] : []), ...(on(true) ? ['ipv6/conf/all/forwarding'] : [])].filter(
    (sysctl) => readSysctl(sysctl) === '0',
  )
}
