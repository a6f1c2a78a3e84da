import type { IfName } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/**
 * A filter that leads all packets that enter a link to another link (an ifb). It stands behind the filters of other
 * programs. The kernel removes it with the link.
 */
export interface Redirect {
  readonly kind: 'redirect'
  readonly ns: 'host'
  readonly dev: IfName
  readonly to: IfName
  readonly replaced?: true
}

// The preference identifies plumb's filter. It places the filter behind the filters of other programs, which are
// neither changed nor removed.
const PLACE = 'protocol all pref 20556'

/** Redirections of packets that enter a link. They stand in the clsact or ingress qdisc that the link has. */
export const redirect: Handler<Redirect> = {
  tool: 'tc',
  title: ({ dev, to }) => `redirection of what comes in by ${dev} to ${to}`,
  purpose,
  key: ({ ns, dev }) => `redirect ${ns} ${dev}`,
  put: ({ dev, to }) => [
    // An existing qdisc serves as well, also one of another program. A filter of an earlier ADD may lead to a missing
    // device and would stand before this filter. So it is deleted first.
    {
      text: `qdisc add dev ${dev} clsact`,
      unless: /Exclusivity flag on/,
      otherwise: [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }],
    },
    { text: `filter add dev ${dev} ingress ${PLACE} u32 match u32 0 0 action mirred egress redirect dev ${to}` },
  ],
  drop: ({ dev, replaced }) => (replaced ? [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }] : []),
  ask: ({ dev }) => `filter show dev ${dev} ingress`,
  read(row, want) {
    const { pref, options } = row as FilterRow
    const [action] = options?.actions ?? []
    return pref === 20556 && action?.kind === 'mirred'
      ? { ...want, to: (action.to_dev ?? '') as typeof want.to }
      : undefined
  },
}

const GONE = /Cannot find|not found|No such|Invalid handle|does(n't| not) exist/

interface FilterRow {
  readonly pref?: number
  readonly options?: { readonly actions?: readonly { readonly kind?: string; readonly to_dev?: string }[] }
}

function purpose({ dev, to }: Redirect, { text }: Line, gone: boolean): string {
  if (text.startsWith('qdisc')) return `where filters of what comes in by ${dev} stand; another's serves as well`
  return gone
    ? `what comes in by ${dev} goes on as usual`
    : `what comes in by ${dev}, which the pod sends, goes through ${to} first`
}
