import { isSix } from './cidr.ts'
import type { Cidr } from './ip.ts'
import { readSysctl } from './sysctls.ts'

/** The switches, as sysctls below net/, that keep the node from forwarding what pods send to these addresses of its own, one of each family that they are of. */
export function notForwarding(gateways: readonly Cidr[]): string[] {
  const on = (six: boolean) => gateways.some((one) => isSix(one) === six)
  return [...(on(false) ? ['ipv4/ip_forward'] : []), ...(on(true) ? ['ipv6/conf/all/forwarding'] : [])].filter((sysctl) => readSysctl(sysctl) === '0')
}
