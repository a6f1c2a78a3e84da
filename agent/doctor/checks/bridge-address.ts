import { contains, isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'

/**
 * The bridge of pods keeps the address of an earlier subnet. The plugin then refuses every pod. With `forceAddress`, as
 * the agent's own network has it, the next pod replaces the address, and only pods of the earlier subnet are the worse.
 */
export const check = defineCheck({
  code: 'DR28',
  title: 'bridge has the address of another subnet',
  severity: 'error',
  inAgent: 'node',
  isOfNode: true,
  reads: ['links', 'lists', 'network', 'pods', 'agent'],
  detect({ links, lists, network, pods, agent }) {
    if (!network) return []
    const [first] = lists.files
    const isFlannel = first?.list?.plugins.some(({ type }) => type === 'flannel') === true
    if (!isFlannel) return []
    const delegate = first?.list?.plugins.find(({ type }) => type === 'flannel')?.conf['delegate'] as
      | { bridge?: unknown; forceAddress?: unknown }
      | undefined
    const name = typeof delegate?.bridge === 'string' ? delegate.bridge : 'cni0'
    const bridge = links.find((one) => one.name === name && one.kind === 'bridge')
    const ofPods = pods.filter(({ link }) => links.find((one) => one.name === link)?.master === name)
    return (bridge?.addresses ?? []).flatMap(({ ip, cidr, isLinkLocal }): SeenFault[] => {
      const subnet = network.subnets.find((one) => isSix(one) === isSix(ip))
      if (isLinkLocal || subnet === undefined || contains(subnet, ip)) return []
      const isForced = delegate?.forceAddress === true
      const behind = ofPods.filter(({ ips }) => ips.some((one) => contains(cidr, one)))
      if (isForced && behind.length === 0) return []
      return [
        {
          what: `The bridge ${name} has the address ${cidr}, and the subnet of this node is ${subnet}`,
          effect: isForced
            ? 'the next pod takes it away, and the pods of that subnet lose their gateway'
            : `pods fail with "${name} already has an IP address different from"`,
          commands:
            behind.length > 0
              ? drained(agent?.node ?? 'NODE', [`ip addr del ${cidr} dev ${name}`])
              : [ofPods.length > 0 ? `ip addr del ${cidr} dev ${name}` : `ip link del dev ${name}`],
        },
      ]
    })
  },
})

// The address is the gateway of living pods, which come back with addresses of the subnet of now.
function drained(node: string, commands: readonly string[]): string[] {
  return [`kubectl drain ${node} --ignore-daemonsets --delete-emptydir-data`, ...commands, `kubectl uncordon ${node}`]
}
