import { isSix } from '../../../lib/text/cidr.ts'
import type { Check, Seen } from '../check.ts'
import { type Chain, isOurs, rulesIn } from '../facts/ruleset.ts'
import { drops, type Forwarded } from '../forward-chains.ts'
import { FIREWALLD, isUfw } from '../managed-firewalls.ts'
import { packetsOf } from '../packets.ts'

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
    return chains.flatMap((chain): Seen[] => {
      if (chain.hook !== 'forward' || chain.type !== 'filter' || isOurs(chain)) return []
      // Each has a check of its own, with its own commands.
      if (chain.table === FIREWALLD || isUfw(chains, chain)) return []
      const name = `${chain.family} ${chain.table} ${chain.name}`
      const because = chain.policy === 'drop' ? ', whose policy is drop,' : ''
      return packets
        .filter((packet) => drops(chain, packet, rulesIn(chains, chain)))
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
