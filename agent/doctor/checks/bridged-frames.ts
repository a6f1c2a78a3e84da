import { BRIDGE_FILTERS, sysctlName } from '../../../lib/os/sysctls.ts'
import { defineCheck } from '../check.ts'
import { bridgesOf } from '../facts/pods.ts'

/**
 * Frames between two ports of a bridge skip the rules of IP, unless br_netfilter hands them over. Source:
 * Documentation/networking/ip-sysctl.rst, "/proc/sys/net/bridge/*".
 */
export const check = defineCheck({
  code: 'DR2',
  title: 'frames of a bridge skip the rules',
  severity: 'error',
  inAgent: 'node',
  isOfNode: true,
  reads: ['sysctl', 'agent', 'pods', 'links'],
  detect({ sysctl, agent, pods, links }) {
    if (!agent?.policy && !agent?.services) return []
    const [bridge] = bridgesOf(pods, links)
    if (bridge === undefined) return []
    const effect = `packets between two pods of bridge ${bridge} skip policy and Services`
    if (sysctl(BRIDGE_FILTERS[0]) === undefined) {
      const commands = ['modprobe br_netfilter', 'echo br_netfilter >/etc/modules-load.d/plumb.conf']
      return [{ what: 'The kernel module br_netfilter is not loaded', effect, commands }]
    }
    const off = BRIDGE_FILTERS.filter((name) => sysctl(name) === '0').map(sysctlName)
    if (off.length === 0) return []
    const what = `${off.join(' and ')} ${off.length > 1 ? 'are' : 'is'} 0`
    return [{ what, effect, commands: off.map((name) => `sysctl -w ${name}=1`) }]
  },
})
