import { nameOf } from '../../state/reachability.ts'
import { defineCheck } from '../check.ts'
import { TUNNELS } from '../packets.ts'
import { agentSetting, shellWord } from '../shell.ts'

/**
 * Nodes that announce one address cannot reach each other. With Vagrant, each machine has 10.0.2.15 at its first link,
 * which is a NAT of its own.
 */
export const check = defineCheck({
  code: 'DR23',
  title: 'several nodes announce one address',
  severity: 'error',
  reads: ['status', 'links', 'pods'],
  detect({ status, links, pods }) {
    const own = status?.uplink
    const ip = own?.advertise.v4 ?? own?.advertise.v6
    if (!status || !own || ip === undefined) return []
    const same = status.peers.filter(({ ips }) => ips.v4 === ip || ips.v6 === ip)
    const [first] = same
    if (!first) return []
    const notOut = new Set([own.name, 'lo', ...pods.map(({ link }) => link)])
    const other = links.find(({ name, kind, isUp, addresses }) => {
      const hasOther = addresses.some((one) => !one.isLinkLocal && one.ip !== ip)
      return isUp && hasOther && !notOut.has(name) && kind !== 'bridge' && !TUNNELS.includes(kind)
    })
    return [
      {
        what: `This node and ${nameOf(first)} announce ${ip} of ${own.name}${same.length > 1 ? `, and ${same.length - 1} more` : ''}`,
        effect: 'packets to pods of the others come back to this node',
        commands: other ? agentSetting('iface', other.name) : [`ip addr show dev ${shellWord(own.name)}`],
      },
    ]
  },
})
