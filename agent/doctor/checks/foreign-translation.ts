import { isSix } from '../../../lib/text/cidr.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import { isOurs, rulesIn } from '../facts/ruleset.ts'
import { translates } from '../forward-chains.ts'
import { packetsOf } from '../packets.ts'

/** What a chain of nat does to packets at each hook, and what comes of it. */
const HOOKS: Readonly<Record<string, { readonly does: string; readonly effect: string }>> = {
  postrouting: {
    does: 'masquerades',
    effect: 'pods of other nodes see the address of this node, and so do their policies',
  },
  prerouting: { does: 'redirects', effect: 'another program answers in place of the pod that was asked' },
}

/**
 * Another program gives packets between pods another sender or another receiver. Policies of other nodes then see the
 * wrong sender, or the wrong program answers.
 */
export const check = defineCheck({
  code: 'DR14',
  title: 'another program translates packets between pods',
  severity: 'error',
  inAgent: 'part',
  reads: ['ruleset', 'network', 'links', 'pods', 'agent'],
  detect(facts) {
    const { chains } = facts.ruleset
    const packets = packetsOf(facts)
    return chains.flatMap((chain): SeenFault[] => {
      const at = chain.hook === undefined ? undefined : HOOKS[chain.hook]
      if (at === undefined || chain.type !== 'nat' || isOurs(chain)) return []
      const packet = packets.find((one) => translates(chain, one, rulesIn(chains, chain)))
      if (packet === undefined) return []
      const { family, table, name } = chain
      const word = isSix(packet.from) ? 'ip6' : 'ip'
      const tool = family === 'ip6' ? 'ip6tables' : 'iptables'
      const match = `-s ${packet.from} -d ${packet.to}`
      return [
        {
          what: `The chain ${family} ${table} ${name} of another program ${at.does} packets from ${packet.from} to ${packet.to}`,
          effect: at.effect,
          commands: [
            table === 'nat' && name === chain.hook?.toUpperCase()
              ? `${tool} -t nat -I ${name} ${match} -j ACCEPT`
              : `nft insert rule ${family} ${table} ${name} ${word} saddr ${packet.from} ${word} daddr ${packet.to} accept`,
          ],
        },
      ]
    })
  },
})
