import type { IfName } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'

/** All that comes in by a link is led to another (an ifb), behind the filters that others have there: it goes with the link. */
export interface Redirect {
  readonly kind: 'redirect'
  readonly ns: 'host'
  readonly dev: IfName
  readonly to: IfName
  readonly replaced?: true
}

// By its place, which is behind others', the filter is told from what others put there: theirs is neither changed nor removed.
const PLACE = 'protocol all pref 20556'

/** Redirections of what comes in by a link, in whatever clsact or ingress qdisc stands there. */
export const redirect: Handler<Redirect> = {
  tool: 'tc',
  title: ({ dev, to }) => `redirection of what comes in by ${dev} to ${to}`,
  purpose,
  key: ({ ns, dev }) => `redirect ${ns} ${dev}`,
  put: ({ dev, to }) => [
    // One that is there is as good, also another's. A filter of an earlier ADD, whose device may be gone, would stand before this one.
    { text: `qdisc add dev ${dev} clsact`, unless: /Exclusivity flag on/, otherwise: [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }] },
    { text: `filter add dev ${dev} ingress ${PLACE} u32 match u32 0 0 action mirred egress redirect dev ${to}` },
  ],
  drop: ({ dev, replaced }) => (replaced ? [{ text: `filter delete dev ${dev} ingress ${PLACE}`, unless: GONE }] : []),
  ask: ({ dev }) => `filter show dev ${dev} ingress`,
  read(row, want) {
    const { pref, options } = row as FilterRow
    const [action] = options?.actions ?? []
    return pref === 20556 && action?.kind === 'mirred' ? { ...want, to: (action.to_dev ?? '') as typeof want.to } : undefined
  },
}

const GONE = /Cannot find|not found|No such|Invalid handle|does(n't| not) exist/

interface FilterRow {
  readonly pref?: number
  readonly options?: { readonly actions?: readonly { readonly kind?: string; readonly to_dev?: string }[] }
}

function purpose({ dev, to }: Redirect, { text }: Line, gone: boolean): string {
  if (text.startsWith('qdisc')) return `where filters of what comes in by ${dev} stand; another's serves as well`
  return gone ? `what comes in by ${dev} goes on as usual` : `what comes in by ${dev}, which the pod sends, goes through ${to} first`
}
