import { isSix, meets } from '../../../lib/text/cidr.ts'
import { type Cidr, split } from '../../../lib/text/ip.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Facts } from '../facts/index.ts'
import { bridgesOf } from '../facts/pods.ts'
import { TUNNELS } from '../packets.ts'
import { shellWord } from '../shell.ts'

/**
 * Bridges of programs that make them again, with the network of their settings. Any other link may be the way to the
 * node, so its address stays.
 */
const MADE = /^(docker\d+|br-[\da-f]{12}|virbr\d+|podman\d+|cni-podman\d+|lxcbr\d+|lxdbr\d+)$/

/** The network of pods overlaps a network that the node reaches elsewhere. One of the two is not reachable. */
export const check = defineCheck({
  code: 'DR27',
  title: 'network of pods overlaps another one',
  severity: 'error',
  reads: ['network', 'links', 'pods'],
  detect(facts) {
    const { network } = facts
    if (!network) return []
    return elsewhere(facts).flatMap(({ name, kind, cidr }): SeenFault[] => {
      const ours = network.networks.find((one) => meets(one, cidr))
      if (ours === undefined) return []
      return [
        {
          what: `The network of pods ${ours} overlaps ${cidr} of ${name}`,
          effect: 'packets to one of them go to the other; one of the two needs another network',
          commands: [`ip addr ${kind === 'bridge' && MADE.test(name) ? `del ${cidr}` : 'show'} dev ${shellWord(name)}`],
        },
      ]
    })
  },
})

// The networks of links that are neither of pods nor of the agent.
function elsewhere({ links, pods }: Pick<Facts, 'links' | 'pods'>): { name: string; kind: string; cidr: Cidr }[] {
  const ofPods = new Set(pods.flatMap(({ link }) => link ?? []))
  const bridges = bridgesOf(pods, links)
  return links.flatMap(({ name, kind, addresses }) => {
    const isOwn = TUNNELS.includes(kind) || name === 'cni0' || bridges.has(name) || ofPods.has(name) || kind === 'veth'
    const isNetwork = (cidr: Cidr) => split(cidr).length < (isSix(cidr) ? 128 : 32)
    return isOwn
      ? []
      : addresses.flatMap(({ cidr, isLinkLocal }) => (isLinkLocal || !isNetwork(cidr) ? [] : { name, kind, cidr }))
  })
}
