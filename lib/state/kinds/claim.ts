import { holds } from '../../journal/ports.ts'
import { forgetOf, listsOf } from '../../nft/flows.ts'
import type { Claim, Flows, Handler, Resource } from '../resource.ts'

/** Host ports reserved for their owner, as files: a second owner is refused before anything else is made. */
export const claim: Handler<Claim> = {
  tool: 'file',
  key: ({ protocol, port, ip }) => `claim ${protocol} ${port} ${ip}`,
  put: ({ protocol, port, ip }) => [{ text: `reserve ${protocol} port ${port} of ${ip}` }],
  drop: ({ protocol, port, ip }) => [{ text: `free ${protocol} port ${port} of ${ip}` }],
  ask: () => '',
  read: (_row, want) => (holds(want) ? want : undefined),
}

/** UDP connections to a host port; forgotten when the port is given and when it is taken away. */
export const flows: Handler<Flows> = {
  tool: 'conntrack',
  key: ({ family, port, ip }) => `flows ${family} ${port} ${ip ?? 'any'}`,
  put: (want) => listsOf([want]).map((text) => ({ text })),
  drop: (want) => [{ text: forgetOf(want) }],
  ask: () => '',
  read: (_row, want) => want,
}

/** Whether a resource is a host port reserved as a file. */
export function isClaim(one: Resource): one is Claim {
  return one.kind === 'claim'
}
