import { isSix } from '../../../lib/text/cidr.ts'
import type { Check } from '../check.ts'

const SYSCTLS = { 4: 'ipv4/ip_forward', 6: 'ipv6/conf/all/forwarding' } as const

/** The kernel drops packets that are not for the node itself. Source: Documentation/networking/ip-sysctl.rst. */
export const check: Check = {
  code: 'DR1',
  title: 'forwarding is off',
  severity: 'error',
  inAgent: 'node',
  detect({ sysctl, network, pods }) {
    const addresses = [...(network?.subnets ?? []), ...pods.flatMap(({ ips }) => ips)]
    return ([4, 6] as const).flatMap((family) => {
      const isUsed = addresses.some((one) => isSix(one) === (family === 6))
      const hasPods = pods.some(({ ips }) => ips.some((one) => isSix(one) === (family === 6)))
      // The agent leaves forwarding of IPv6 to the first pod, because it changes how the node takes advertisements.
      if (!isUsed || sysctl(SYSCTLS[family]) !== '0' || (family === 6 && !hasPods)) return []
      const name = `net.${SYSCTLS[family].replaceAll('/', '.')}`
      const file = `/etc/sysctl.d/90-plumb-ipv${family}.conf`
      return {
        what: `${name} is 0: this node does not route IPv${family}`,
        effect: 'its pods reach only this node',
        commands: [`sysctl -w ${name}=1`, `echo '${name} = 1' >${file}`],
      }
    })
  },
}
