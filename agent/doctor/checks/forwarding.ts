import { sysctlName } from '../../../lib/os/sysctls.ts'
import { contains, isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Facts } from '../facts/index.ts'
import { entrancesOf } from '../facts/pods.ts'

const SYSCTLS = { 4: 'ipv4/ip_forward', 6: 'ipv6/conf/all/forwarding' } as const

/**
 * The kernel drops packets that are not for the node itself. For IPv4 the link by which a packet came must forward, too.
 * Source: Documentation/networking/ip-sysctl.rst.
 */
export const check = defineCheck({
  code: 'DR1',
  title: 'forwarding is off',
  severity: 'error',
  inAgent: 'node',
  isOfNode: true,
  reads: ['sysctl', 'network', 'agent', 'links', 'pods'],
  detect(facts) {
    const { sysctl, network, pods } = facts
    const addresses = [...(network?.subnets ?? []), ...pods.flatMap(({ ips }) => ips)]
    const found = ([4, 6] as const).flatMap((family): SeenFault[] => {
      const isUsed = addresses.some((one) => isSix(one) === (family === 6))
      const hasPods = pods.some(({ ips }) => ips.some((one) => isSix(one) === (family === 6)))
      // The agent leaves forwarding of IPv6 to the first pod, because it changes how the node takes advertisements.
      if (!isUsed || sysctl(SYSCTLS[family]) !== '0' || (family === 6 && !hasPods)) return []
      const name = sysctlName(SYSCTLS[family])
      const file = `/etc/sysctl.d/90-plumb-ipv${family}.conf`
      const what = `${name} is 0: this node does not route IPv${family}`
      return [
        {
          what,
          effect: 'its pods reach only this node',
          commands: [`sysctl -w ${name}=1`, `echo '${name} = 1' >${file}`],
        },
      ]
    })
    return found.length > 0 || !addresses.some((one) => !isSix(one)) ? found : closedLinks(facts)
  },
})

function closedLinks({
  sysctl,
  network,
  agent,
  links,
  pods,
}: Pick<Facts, 'sysctl' | 'network' | 'agent' | 'links' | 'pods'>): SeenFault[] {
  const uplink = agent?.uplink?.name
  const isOfNetwork = ({ master, addresses }: Facts['links'][number]) =>
    master === undefined && addresses.some(({ ip }) => network?.networks.some((one) => contains(one, ip)))
  const ofNetwork = links.filter(isOfNetwork).map(({ name }) => name)
  const names = new Set([...(uplink === undefined ? [] : [uplink]), ...ofNetwork, ...entrancesOf(pods, links)])
  return [...names].flatMap((link) => {
    if (sysctl(`ipv4/conf/${link}/forwarding`) !== '0') return []
    const name = `net.ipv4.conf.${link.replaceAll('.', '/')}.forwarding`
    const effect = `what comes by ${link} goes to no other link`
    return [{ what: `${name} is 0`, effect, commands: [`sysctl -w ${name}=1`] }]
  })
}
