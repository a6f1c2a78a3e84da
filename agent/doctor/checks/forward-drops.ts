import { isSix } from '../../../lib/text/cidr.ts'
import type { Check, Seen } from '../check.ts'
import type { Facts } from '../facts/facts.ts'
import { type Chain, isOurs } from '../facts/ruleset.ts'
import { drops, type Forwarded } from '../forward-chains.ts'

/**
 * A chain of another program drops what pods send to pods of other nodes. One example is Docker, which sets the policy
 * of FORWARD to DROP.
 */
export const check: Check = {
  code: 'DR9',
  title: 'a chain of another program drops packets of pods',
  severity: 'error',
  inAgent: 'node',
  detect(facts) {
    const { chains } = facts.ruleset
    const packets = packetsOf(facts)
    const rulesOf = (chain: Chain) => (name: string) =>
      chains
        .find((one) => one.family === chain.family && one.table === chain.table && one.name === name)
        ?.rules.map(({ expr }) => expr) ?? []
    return chains.flatMap((chain): Seen[] => {
      if (chain.hook !== 'forward' || chain.type !== 'filter' || isOurs(chain)) return []
      const name = `${chain.family} ${chain.table} ${chain.name}`
      const because = chain.policy === 'drop' ? ', whose policy is drop,' : ''
      return packets
        .filter((packet) => drops(chain, packet, rulesOf(chain)))
        .map((packet) => ({
          what: `The chain ${name}${because} of another program drops packets from ${packet.from} to ${packet.to}`,
          effect: 'pods do not reach pods of other nodes',
          commands: commandsOf(chain, packet),
        }))
    })
  },
}

// iptables keeps its rules in tables of these names, and would not show a rule of nft.
function commandsOf({ family, table, name }: Chain, { from, to }: Forwarded): string[] {
  if (table === 'filter' && name === 'FORWARD' && family !== 'inet') {
    const tool = family === 'ip6' ? 'ip6tables' : 'iptables'
    return [`${tool} -I FORWARD -s ${from} -j ACCEPT`, `${tool} -I FORWARD -d ${to} -j ACCEPT`]
  }
  const word = isSix(from) ? 'ip6' : 'ip'
  return [
    `nft insert rule ${family} ${table} ${name} ${word} saddr ${from} accept`,
    `nft insert rule ${family} ${table} ${name} ${word} daddr ${to} accept`,
  ]
}

/** What pods send to pods of other nodes: a packet for each network. */
function packetsOf({ network, links, pods, agent }: Facts): Forwarded[] {
  const ofPods = new Set(pods.flatMap(({ link }) => link ?? []))
  const bridges = links.flatMap(({ name, master }) => (ofPods.has(name) && master !== undefined ? [master] : []))
  const ins = [...new Set([...bridges, ...ofPods])]
  const tunnels = links.filter(({ kind }) => TUNNELS.includes(kind)).map(({ name }) => name)
  const uplink = agent?.uplink?.name
  const oif = [...(uplink === undefined ? [] : [uplink]), ...tunnels]
  return (network?.subnets ?? []).flatMap((from) =>
    (network?.networks ?? [])
      .filter((to) => isSix(to) === isSix(from))
      .map((to) => ({ from, to, iif: ins.length > 0 ? ins : ['cni0'], oif })),
  )
}

const TUNNELS: readonly string[] = ['vxlan', 'ipip', 'wireguard']
