import { readQuestion } from '../../agent/dhcp/reading.ts'
import { listen } from '../../agent/node/answers.ts'
import { leaseName } from '../../lib/pools/dhcp.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'

/** Where it listens. */
export const DAEMON = '/run/fuzz-dhcp.sock'

/** A DHCP daemon without servers: it gives everybody the same, and keeps only who has it. */
export function leaseKeeper(): { readonly held: Set<string>; stop(): void } {
  const held = new Set<string>()
  const result = { ips: [{ address: '10.1.0.20/24' as Cidr, gateway: '10.1.0.254' as Ip }], routes: [{ dst: '0.0.0.0/0' as Cidr, gw: '10.1.0.254' as Ip }], dns: { nameservers: ['10.1.0.53'] } }
  const { stop } = listen({ unix: DAEMON }, 'dhcp', async (text) => {
    const question = readQuestion(text)
    if (question.verb === 'add') held.add(leaseName(question.owner))
    if (question.verb === 'del') held.delete(leaseName(question.owner))
    if (question.verb === 'gc') for (const name of held) if (!question.keep.map(leaseName).includes(name)) held.delete(name)
    return question.verb === 'add' || question.verb === 'check' ? { result } : {}
  })
  return { held, stop }
}
