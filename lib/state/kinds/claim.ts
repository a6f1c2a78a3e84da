import type { PartName } from '../../text/owner.ts'
import type { Handler, Line, Named } from '../handler.ts'

/**
 * A host port that belongs to one attachment. `ip` is an address of the node, or `any4` or `any6`. `part` names the
 * part of the journal that owns the port.
 */
export interface Claim {
  readonly kind: 'claim'
  readonly ns: 'host'
  readonly protocol: string
  readonly port: number
  readonly ip: string
  readonly part: PartName
}

/** Host ports that files reserve for their owner. A second owner is refused before anything else is made. */
export const claim: Handler<Claim> = {
  tool: 'file',
  title: ({ protocol, port }) => `claim to host port ${port}/${protocol}`,
  purpose,
  key: ({ protocol, port, ip }) => `claim ${protocol} ${port} ${ip}`,
  put: ({ protocol, port, ip }) => [{ text: `reserve ${protocol} port ${port} of ${ip}` }],
  drop: ({ protocol, port, ip }) => [{ text: `free ${protocol} port ${port} of ${ip}` }],
  ask: () => '',
  // lib/state/observe.ts asks the journal.
  read: (_row, want) => want,
}

/** Whether a resource is a host port reserved as a file. */
export function isClaim(one: Named): one is Claim {
  return one.kind === 'claim'
}

function purpose({ protocol, port, ip }: Claim, _: Line, gone: boolean): string {
  const of = ip.startsWith('any') ? `all IPv${ip.slice(-1)} addresses of the node` : ip
  return gone
    ? `host port ${port}/${protocol} is free for others`
    : `no other container gets port ${port}/${protocol} of ${of}`
}
