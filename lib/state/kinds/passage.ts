import { isPassing, linesOf } from '../../nft/passage.ts'
import type { Handler, Line } from '../handler.ts'

/** Lets what lib/nft/firewall.nft marks pass the FORWARD chain of iptables, made once for all pods; `admin` is a chain of iptables that is asked before. */
export interface Passage {
  readonly kind: 'passage'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly admin: string
  /** Where there is no FORWARD chain, too: one that is made later, by Docker say, then finds it. */
  readonly always?: true
}

/** A way through the FORWARD chain of iptables, shared by all pods: never removed, since other pods need it, as a reference plugin's chains are not. */
export const passage: Handler<Passage> = {
  tool: 'iptables',
  title: ({ family, admin }) => `iptables chain PLUMB-PODS, IPv${family}, with ${admin} in it and the jump to it,`,
  purpose,
  key: ({ family, admin }) => `passage ${family} ${admin}`,
  put: (want) => linesOf(want).map((text) => ({ text })),
  drop: () => [],
  ask: () => '',
  read: (_row, want) => (isPassing(want) ? want : undefined),
}

function purpose({ admin }: Passage, { text }: Line): string {
  if (text === '*filter' || text === 'COMMIT') return 'all or nothing'
  if (text.startsWith(':')) return text.includes('PLUMB-PODS') ? "the chain of iptables that lets pods' packets pass" : `the admin's chain in iptables, for rules as a reference plugin's node has them`
  if (text.startsWith('-I')) return 'it comes before what Docker, say, drops there'
  return text.endsWith(` -j ${admin}`) ? "the admin's own rules come first" : 'what the chain `forward` of table inet plumb marked passes'
}
