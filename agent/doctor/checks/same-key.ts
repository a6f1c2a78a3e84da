import { nameOf } from '../../state/reachability.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { shellWord } from '../shell.ts'

/** Two nodes have one MAC of the VXLAN device, or one WireGuard key. Cloned disks have them. */
export const check = defineCheck({
  code: 'DR31',
  title: 'two nodes have one MAC or one key',
  severity: 'error',
  reads: ['status', 'links'],
  detect({ status, links }) {
    if (!status) return []
    const device = links.find(({ name, kind }) => kind === 'vxlan' && name.startsWith('flannel'))?.name ?? 'flannel.1'
    return status.peers.flatMap((peer): SeenFault[] => {
      const found = sharedIn(peer.problem ?? '')
      if (!found) return []
      const { word, value, other, isHere } = found
      const where = isHere ? '' : `; run the commands on ${nameOf(peer)}`
      const again = [
        'systemctl stop plumb-agent',
        `ip link delete dev ${shellWord(device)}`,
        'systemctl start plumb-agent',
      ]
      return [
        {
          what: `${nameOf(peer)} and ${other} have the ${word} ${value}`,
          effect: `pods of one of them are not reached; its disk is a copy of the other's${where}`,
          commands: word === 'key' ? ['plumb wireguard rotate'] : again,
        },
      ]
    })
  },
})

// What the agent says of a peer that it cannot reach (agent/backend/peers.ts and types/).
function sharedIn(problem: string) {
  const [, word, value] = /\bthis node's own (MAC|key) (\S+):/.exec(problem) ?? []
  if (word !== undefined) {
    const isHere = word === 'key' || problem.includes('this node is a copy')
    return { word, value, other: 'this node', isHere }
  }
  const [, kind, shared, ip] = /it announces the (MAC|key) (\S+), as the node with (\S+) does/.exec(problem) ?? []
  return kind === undefined ? undefined : { word: kind, value: shared, other: `the node with ${ip}`, isHere: false }
}
