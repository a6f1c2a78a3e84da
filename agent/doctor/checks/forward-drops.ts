import { isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { type Chain, isOurs, rulesIn } from '../facts/ruleset.ts'
import { drops, type Forwarded } from '../forward-chains.ts'
import { FIREWALLD, isUfw } from '../managed-firewalls.ts'
import { arrivalsOf, packetsOf } from '../packets.ts'

/**
 * A chain of another program drops what pods send to pods of other nodes, or what comes from there. One example is
 * Docker, which sets the policy of FORWARD to DROP.
 */
export const check = defineCheck({
  code: 'DR9',
  title: 'a chain of another program drops packets of pods',
  severity: 'error',
  inAgent: 'node',
  reads: ['ruleset', 'network', 'links', 'pods', 'agent'],
  detect(facts) {
    const { chains } = facts.ruleset
    const packets = packetsOf(facts)
    const arrivals = arrivalsOf(facts)
    return chains.flatMap((chain): SeenFault[] => {
      if (chain.hook !== 'forward' || chain.type !== 'filter' || isOurs(chain)) return []
      // Each has a check of its own, with its own commands.
      if (chain.table === FIREWALLD || isUfw(chains, chain)) return []
      const name = `${chain.family} ${chain.table} ${chain.name}`
      const because = chain.policy === 'drop' ? ', whose policy is drop,' : ''
      const isDropped = (packet: Forwarded) => drops(chain, packet, rulesIn(chains, chain))
      const seen = (packet: Forwarded, effect: string): SeenFault => ({
        what: `The chain ${name}${because} of another program drops packets from ${packet.from} to ${packet.to}`,
        effect,
        commands: commandsOf(chain, packet),
      })
      const sent = packets.filter(isDropped)
      // The commands for what this node sends also let pass what comes.
      const isNamed = ({ to }: Forwarded) => sent.some(({ from }) => isSix(from) === isSix(to))
      const come = arrivals.filter((packet) => !isNamed(packet) && isDropped(packet))
      return [
        ...sent.map((packet) => seen(packet, 'pods do not reach pods of other nodes')),
        ...come.map((packet) => seen(packet, 'pods of other nodes do not reach pods of this node')),
      ]
    })
  },
})

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
