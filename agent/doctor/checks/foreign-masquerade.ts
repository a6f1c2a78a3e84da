import { defineCheck, type SeenFault } from '../check.ts'
import { isOurs, rulesIn } from '../facts/ruleset.ts'
import { translates } from '../forward-chains.ts'
import { packetsOf } from '../packets.ts'

/** Another program gives packets between pods the node's address. Policies of other nodes then see the wrong sender. */
export const check = defineCheck({
  code: 'DR14',
  title: 'another program masquerades packets between pods',
  severity: 'error',
  inAgent: 'part',
  reads: ['ruleset', 'network', 'links', 'pods', 'agent'],
  detect(facts) {
    const { chains } = facts.ruleset
    const packets = packetsOf(facts)
    return chains.flatMap((chain): SeenFault[] => {
      if (chain.hook !== 'postrouting' || chain.type !== 'nat' || isOurs(chain)) return []
      const packet = packets.find((one) => translates(chain, one, rulesIn(chains, chain)))
      if (packet === undefined) return []
      const { family, table, name } = chain
      const word = family === 'ip6' ? 'ip6' : 'ip'
      const tool = family === 'ip6' ? 'ip6tables' : 'iptables'
      const match = `-s ${packet.from} -d ${packet.to}`
      return [
        {
          what: `The chain ${family} ${table} ${name} of another program masquerades packets from ${packet.from} to ${packet.to}`,
          effect: 'pods of other nodes see the address of this node, and so do their policies',
          commands: [
            table === 'nat' && name === 'POSTROUTING'
              ? `${tool} -t nat -I POSTROUTING ${match} -j ACCEPT`
              : `nft insert rule ${family} ${table} ${name} ${word} saddr ${packet.from} ${word} daddr ${packet.to} accept`,
          ],
        },
      ]
    })
  },
})
