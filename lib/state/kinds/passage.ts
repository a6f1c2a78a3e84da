import { isPassing, linesOf } from '../../nft/passage.ts'
import type { Handler, Passage } from '../resource.ts'

/** A way through the FORWARD chain of iptables, shared by all pods: never removed, since other pods need it, as a reference plugin's chains are not. */
export const passage: Handler<Passage> = {
  tool: 'iptables',
  key: ({ family, admin }) => `passage ${family} ${admin}`,
  put: (want) => linesOf(want).map((text) => ({ text })),
  drop: () => [],
  ask: () => '',
  read: (_row, want) => (isPassing(want) ? want : undefined),
}
