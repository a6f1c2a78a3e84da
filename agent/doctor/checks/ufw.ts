import { isSix } from '../../../lib/text/cidr.ts'
import type { Status } from '../../state/status.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Facts } from '../facts/index.ts'
import { type Chain, rulesIn } from '../facts/ruleset.ts'
import { drops, type Forwarded } from '../forward-chains.ts'
import { isUfw, tunnelled } from '../managed-firewalls.ts'
import { packetsOf } from '../packets.ts'

/**
 * ufw drops what pods forward (DEFAULT_FORWARD_POLICY="DROP"), or closes the port of the tunnel. Its own chains have
 * matches of xtables, which cannot be followed. So the port counts as closed only when other nodes are silent.
 */
export const check = defineCheck({
  code: 'DR11',
  title: 'ufw drops packets of pods',
  severity: 'error',
  reads: ['ruleset', 'network', 'links', 'pods', 'agent', 'status', 'reach'],
  detect(facts) {
    const { chains } = facts.ruleset
    const ofUfw = chains.filter((chain) => chain.policy === 'drop' && isUfw(chains, chain))
    const forwarded = packetsOf(facts).filter((packet) =>
      ofUfw.some((chain) => chain.hook === 'forward' && isDropped(chain, packet, chains)),
    )
    const seen = forwarded.map(
      ({ from, to }): SeenFault => ({
        what: `ufw drops packets from ${from} to ${to} (DEFAULT_FORWARD_POLICY="DROP")`,
        effect: 'pods do not reach pods of other nodes',
        commands: [`ufw route allow from ${from}`, `ufw route allow to ${from}`],
      }),
    )
    const [closed] = isAnySilent(facts)
      ? tunnelled(facts).filter((packet) =>
          ofUfw.some((chain) => chain.hook === 'input' && isDropped(chain, packet, chains)),
        )
      : []
    if (!closed) return seen
    const what = `ufw closes UDP port ${closed.udp}, the port of the tunnel`
    const effect = 'packets of pods of other nodes do not arrive'
    return [...seen, { what, effect, commands: [`ufw allow ${closed.udp}/udp`] }]
  },
})

// Neither a rule in front of those of ufw nor one of ufw's user accepts the packet.
function isDropped(chain: Chain, packet: Forwarded, chains: readonly Chain[]): boolean {
  if (chain.family !== (isSix(packet.from) ? 'ip6' : 'ip')) return false
  const rulesOf = rulesIn(chains, chain)
  const isPassed = (name: string) => !drops({ ...chain, name }, packet, rulesOf)
  const user = `${chain.family === 'ip6' ? 'ufw6' : 'ufw'}-user-${chain.hook}`
  const others = chain.rules.flatMap(({ expr }) =>
    expr.flatMap(({ jump }) => (jump as { target?: string } | undefined)?.target ?? []),
  )
  const isAccepted = chain.rules.some(({ expr }) => expr.some((part) => 'accept' in part))
  return !isAccepted && [user, ...others.filter((name) => !/^ufw6?-/.test(name))].every((name) => !isPassed(name))
}

function isAnySilent({ status, reach }: Pick<Facts, 'status' | 'reach'>): boolean {
  const isSilent = ({ ips }: Status['peers'][number]) =>
    ips.v4 !== undefined && reach.get(ips.v4)?.isTunnelled === false && reach.get(ips.v4)?.answers === true
  return status?.peers.some(isSilent) ?? false
}
