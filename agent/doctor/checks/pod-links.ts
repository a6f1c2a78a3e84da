import { isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** The link of a pod on the node is gone, is down, or has left its bridge. */
export const check = defineCheck({
  code: 'DR43',
  title: 'the link of a pod is broken',
  severity: 'error',
  reads: ['pods', 'links'],
  detect({ pods, links }) {
    const byName = new Map(links.map((one) => [one.name, one]))
    return pods.flatMap(({ container, ifname, ips, link }): SeenFault[] => {
      if (link === undefined) return []
      const effect = `${ifname} of container ${container} (${ips.join(', ')}) has no network`
      const seen = byName.get(link)
      const four = ips.find((ip) => !isSix(ip)) ?? ips[0]
      if (!seen) {
        const commands = [`crictl stopp ${shellWord(container)}`]
        return [{ what: `The link ${link} of ${four} is gone`, effect, commands }]
      }
      if (seen.isUp) return []
      return [{ what: `The link ${link} is down`, effect, commands: [`ip link set dev ${link} up`] }]
    })
  },
})
