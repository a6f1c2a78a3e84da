import { isSix } from '../../lib/text/cidr.ts'
import type { Facts } from './facts/facts.ts'
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
  const tunnels = links.filter(({ kind }) => TUNNELS.includes(kind)).map(({ name }) => name)
  const uplink = agent?.uplink?.name
  const oif = tunnels.length > 0 ? tunnels : uplink === undefined ? [] : [uplink]
  return (network?.subnets ?? []).flatMap((from) =>
    (network?.networks ?? [])
      .filter((to) => isSix(to) === isSix(from))
      .map((to) => ({ from, to, iif: ins.length > 0 ? ins : ['cni0'], oif })),
  )
}
