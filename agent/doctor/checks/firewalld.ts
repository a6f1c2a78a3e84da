import { defineCheck, type SeenFault } from '../check.ts'
import { rulesIn } from '../facts/ruleset.ts'
import { drops } from '../forward-chains.ts'
import { FIREWALLD, tunnelled } from '../managed-firewalls.ts'
import { packetsOf } from '../packets.ts'

const RELOAD = 'firewall-cmd --reload'

/**
 * firewalld rejects packets of pods, whose addresses are in no zone that lets them pass, or closes the port of the
 * tunnel. Without `--permanent`, a reload of firewalld would undo the commands.
 */
export const check = defineCheck({
  code: 'DR10',
  title: 'firewalld rejects packets of pods',
  severity: 'error',
  inAgent: 'node',
  reads: ['ruleset', 'network', 'links', 'pods', 'agent'],
  detect(facts) {
    const { chains } = facts.ruleset
    const own = chains.filter(({ table, type }) => table === FIREWALLD && type === 'filter')
    const isRejected = (hook: string) => (packet: Parameters<typeof drops>[1]) =>
      own.some((chain) => chain.hook === hook && drops(chain, packet, rulesIn(chains, chain)))
    const forwarded = packetsOf(facts).filter(isRejected('forward'))
    const [closed] = tunnelled(facts).filter(isRejected('input'))
    const rejected = forwarded.map(
      ({ from, to }): SeenFault => ({
        what: `firewalld rejects packets from ${from} to ${to}: no zone that lets them pass has ${to}`,
        effect: 'pods do not reach pods of other nodes',
        commands: [`firewall-cmd --permanent --zone=trusted --add-source=${to}`, RELOAD],
      }),
    )
    if (!closed) return rejected
    const { udp, iif } = closed
    const command = `firewall-cmd --permanent --zone=$(firewall-cmd --get-zone-of-interface=${iif[0]} || firewall-cmd --get-default-zone) --add-port=${udp}/udp`
    return [
      ...rejected,
      {
        what: `firewalld closes UDP port ${udp} of ${iif[0]}, the port of the tunnel`,
        effect: 'packets of pods of other nodes do not arrive',
        commands: [command, RELOAD],
      },
    ]
  },
})
