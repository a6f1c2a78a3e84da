import type { Node } from '../../support/nodes.ts'
import { random } from '../../support/seed.ts'

/** One of what a command lists, as `$1` of the next. */
const ONE = (list: string, then: string) => `set -- $(${list} | shuf -n 1); [ -z "$1" ] || ${then}`
const TABLE = 'nft list tables | grep -o "plumb_agent.*"'

/**
 * What people and programs do to a node by hand, as shell commands. The agent puts right its own objects. The next ADD
 * puts right those of plugins.
 */
export const DEEDS = {
  agent: [
    ONE('ip -4 route show proto 112', 'ip -4 route del $1'),
    ONE('ip -6 route show proto 112', 'ip -6 route del $1'),
    'ip route add 10.244.250.0/25 dev lo proto 112',
    ONE('ip neigh show dev flannel.1 nud permanent', 'ip neigh del $1 dev flannel.1'),
    ONE('ip -6 neigh show dev flannel-v6.1 nud permanent', 'ip -6 neigh del $1 dev flannel-v6.1'),
    ONE(
      'ip neigh show dev flannel.1 nud permanent',
      'ip neigh replace $1 lladdr 02:00:00:00:00:99 dev flannel.1 nud permanent',
    ),
    ONE('bridge fdb show dev flannel.1', 'bridge fdb del $1 dev flannel.1'),
    'bridge fdb append 02:00:00:00:00:77 dev flannel.1 dst 172.30.0.77 self permanent',
    `nft flush table inet $(${TABLE})`,
    `nft delete table inet $(${TABLE})`,
    'ip link del flannel.1',
    'ip link del flannel-v6.1',
    'ip link set flannel.1 down',
    'ip link set flannel.1 mtu 1300',
    'ip -4 addr flush dev flannel.1',
    'ip -6 addr flush dev flannel-v6.1 scope global',
  ],
  pods: [
    'nft flush table inet plumb',
    'nft delete table inet plumb',
    'nft flush map inet plumb ports4',
    'nft flush set inet plumb masq4',
    ONE('ip -o link show master cni0 | grep -o "veth[0-9a-f]*"', 'ip link del $1'),
    ONE('ip -o link show master cni0 | grep -o "veth[0-9a-f]*"', 'ip link set $1 nomaster'),
    'ip addr flush dev cni0 scope global',
    'ip link del cni0',
    'ip link set cni0 down',
  ],
} as const

/** Does one of them, at random. What it names may be gone: that is its own affair. */
export async function act({ ns }: Node, deeds: readonly string[]): Promise<void> {
  await ns.exec(['sh', '-c', deeds[Math.floor(random() * deeds.length)] as string])
}
