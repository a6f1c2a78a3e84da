import { isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { bridgesOf } from '../facts/pods.ts'

/**
 * IPv6 that is disabled on a link, and an uplink that loses its route because it forwards. A link that forwards takes
 * router advertisements only with accept_ra 2. Source: Documentation/networking/ip-sysctl.rst.
 */
export const check = defineCheck({
  code: 'DR7',
  title: 'IPv6 is disabled where the network needs it',
  severity: 'error',
  inAgent: 'node',
  isOfNode: true,
  reads: ['sysctl', 'network', 'agent', 'links', 'pods'],
  detect({ sysctl, network, agent, links, pods }) {
    if (!network?.subnets.some(isSix)) return []
    const uplink = agent?.uplink?.name
    const masters = bridgesOf(pods, links)
    const names = ['all', ...(uplink === undefined ? [] : [uplink]), ...masters]
    const off = names.filter((name) => sysctl(`ipv6/conf/${name}/disable_ipv6`) === '1')
    const disabled = off.map((name): SeenFault => {
      const dotted = `net.ipv6.conf.${name.replaceAll('.', '/')}.disable_ipv6`
      return { what: `${dotted} is 1`, effect: 'pods have no IPv6', commands: [`sysctl -w ${dotted}=0`] }
    })
    if (uplink === undefined || sysctl(`ipv6/conf/${uplink}/forwarding`) !== '1') return disabled
    const ra = `net.ipv6.conf.${uplink.replaceAll('.', '/')}.accept_ra`
    const isByRouter = sysctl(`ipv6/conf/${uplink}/accept_ra`) === '1' && sysctl(`ipv6/conf/${uplink}/autoconf`) === '1'
    const isRouted = links.some(
      ({ name, addresses }) => name === uplink && addresses.some(({ ip, isLinkLocal }) => isSix(ip) && !isLinkLocal),
    )
    if (!isByRouter || isRouted) return disabled
    const what = `${ra} is 1 on an uplink that forwards, and the uplink has no IPv6 address`
    const effect = 'the node takes no address and no default route from its router'
    return [...disabled, { what, effect, commands: [`sysctl -w ${ra}=2`] }]
  },
})
