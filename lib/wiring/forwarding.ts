import { readSysctl } from '../os/sysctls.ts'
import { isSix } from '../text/cidr.ts'
import type { Cidr } from '../text/ip.ts'

/** The switches, as sysctls below net/, that keep the node from forwarding what pods send to these addresses of its own, one of each family that they are of. */
export function notForwarding(gateways: readonly Cidr[]): string[] {
  const on = (six: boolean) => gateways.some((one) => isSix(one) === six)
  return [...(on(false) ? ['ipv4/ip_forward'] : []), ...(on(true) ? ['ipv6/conf/all/forwarding'] : [])].filter((sysctl) => readSysctl(sysctl) === '0')
}
