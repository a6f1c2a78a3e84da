import { andMore } from '../../../lib/text/listing.ts'
import { nameOf } from '../../state/reachability.ts'
import type { Status } from '../../state/status.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Facts } from '../facts/index.ts'

/** The number of peers that a sentence names. */
const NAMED = 3

/** Peers do not answer over the tunnel, though their nodes answer. Something between the nodes drops the tunnel. */
export const check = defineCheck({
  code: 'DR17',
  title: 'tunnel to other nodes is blocked',
  severity: 'error',
  dependsOn: ['DR1', 'DR4', 'DR5', 'DR6', 'DR10', 'DR11', 'DR21', 'DR22', 'DR23', 'DR24', 'DR32'],
  reads: ['status', 'links', 'reach'],
  detect({ status, links, reach }) {
    if (!status) return []
    const reachOf = ({ ips }: Status['peers'][number]) => (ips.v4 === undefined ? undefined : reach.get(ips.v4))
    const silent = status.peers.filter(
      (peer) => peer.problem === undefined && !peer.isAway && reachOf(peer)?.isTunnelled === false,
    )
    const answering = silent.filter((peer) => reachOf(peer)?.answers === true)
    if (silent.length === 0) return []
    const way = wayOf(status, links)
    if (answering.length === 0) return [wholeNode(silent)]
    const names = answering.slice(0, NAMED).map((peer) => `${nameOf(peer)} (${peer.ips.v4})`)
    const one = silent.length === 1
    const who = `${one ? 'Node' : `${silent.length} nodes, such as`} ${names.join(', ')}${andMore(silent.length - NAMED)}`
    const does = one ? 'answers, its tunnel does' : 'answer, their tunnels do'
    return [
      {
        what: `${who} ${does} not; want ${way.text} to pass between the nodes`,
        effect: 'pods of these nodes do not reach each other',
        commands: way.rule === undefined ? [] : [`iptables -I INPUT ${way.rule} -j ACCEPT`],
      },
    ]
  },
})

function wholeNode(silent: Status['peers']): SeenFault {
  const names = silent.slice(0, NAMED).map((peer) => `${nameOf(peer)} (${peer.ips.v4})`)
  const who = silent.length === 1 ? `Node ${names[0]} answers` : `Nodes ${names.join(', ')} answer`
  return {
    what: `${who} neither at the address of the node nor over the tunnel`,
    effect: 'its pods are not reached; the node is down, or the network between the nodes is',
    commands: [`ip route get ${silent[0]?.ips.v4}`],
  }
}

// What carries packets of pods between nodes, for people and for iptables.
function wayOf({ backend }: Status, links: Facts['links']): { readonly text: string; readonly rule?: string } {
  const port = backend === 'vxlan' ? links.find(({ name }) => name.startsWith('flannel'))?.vxlan?.port : undefined
  const ports: Readonly<Record<string, number>> = { vxlan: port ?? 8472, udp: 8285, wireguard: 51_820 }
  const udp = ports[backend]
  if (udp !== undefined) return { text: `UDP port ${udp}`, rule: `-p udp --dport ${udp}` }
  if (backend === 'ipip') return { text: 'IP protocol 4', rule: '-p 4' }
  return { text: 'packets of pods' }
}
