import { isSix } from '../../lib/text/cidr.ts'
import type { Facts } from './facts/index.ts'
import { bridgesOf } from './facts/pods.ts'
import type { Forwarded } from './forward-chains.ts'

/** The kinds of links that carry packets between nodes. */
export const TUNNELS: readonly string[] = ['vxlan', 'ipip', 'wireguard']

/** What pods send to pods of other nodes: a packet for each network. */
export function packetsOf({
  network,
  links,
  pods,
  agent,
}: Pick<Facts, 'network' | 'links' | 'pods' | 'agent'>): Forwarded[] {
  const ofPods = new Set(pods.flatMap(({ link }) => link ?? []))
  const ins = [...bridgesOf(pods, links), ...ofPods]
  const oif = waysOut({ links, agent })
  return (network?.subnets ?? []).flatMap((from) =>
    (network?.networks ?? [])
      .filter((to) => isSix(to) === isSix(from))
      .map((to) => ({ from, to, iif: ins.length > 0 ? ins : ['cni0'], oif })),
  )
}

/** What pods of other nodes send to pods of this node: a packet for each network. */
export function arrivalsOf(facts: Parameters<typeof packetsOf>[0]): Forwarded[] {
  // A rule about the link of one pod is not about all of them. So only a bridge counts.
  const bridges = [...bridgesOf(facts.pods, facts.links)]
  const oif = facts.pods.length > 0 ? bridges : ['cni0']
  const iif = waysOut(facts)
  return packetsOf(facts).map(({ from, to }) => ({ from: to, to: from, iif, oif }))
}

function waysOut({ links, agent }: Pick<Facts, 'links' | 'agent'>): string[] {
  const tunnels = links.filter(({ kind }) => TUNNELS.includes(kind)).map(({ name }) => name)
  const uplink = agent?.uplink?.name
  return tunnels.length > 0 ? tunnels : uplink === undefined ? [] : [uplink]
}
