import type { BgpSession } from '../bgp/view.ts'
import { span } from '../state/phrases.ts'
import { collator } from '../state/reachability.ts'
import { Card } from './common.tsx'
import type { Fields } from './filter.ts'
import { type Column, Table } from './table.tsx'
import type { ViewProps } from './view.ts'

const FIELDS: Fields<BgpSession> = {
  node: { kind: 'text', of: ({ name }) => name },
  kind: { kind: 'exact', of: ({ kind }) => kind },
  state: { kind: 'exact', of: (one) => (isAway(one) ? [one.state, 'bad'] : one.state) },
  text: { kind: 'text', of: textOf },
}

/** The sessions of BGP, with those first that are not established. */
export function Bgp({ known, place, go, now }: ViewProps) {
  const { bgp } = known.status
  if (!bgp) return null
  const { asn, pid, announced, sessions } = bgp
  const up = sessions.filter((one) => !isAway(one)).length
  const head = `AS ${asn}, prefixes announced: ${announced}, ${pid === undefined ? 'BIRD does not run' : `${up} of ${sessions.length} established`}`
  return (
    <Card id="bgp" title="BGP" aside={<p>{head}</p>}>
      <Table
        what={sessions.length === 1 ? 'session' : 'sessions'}
        all={sessions}
        columns={columnsAt(now)}
        keyOf={({ kind, address }) => `${kind} ${address}`}
        isBad={isAway}
        fields={FIELDS}
        textOf={textOf}
        example="state:bad kind:peer"
        orderOf={orderOf}
        sortable={['node']}
        place={place}
        go={go}
        empty="There are no sessions"
      />
    </Card>
  )
}

function columnsAt(now: number): readonly Column<BgpSession>[] {
  return [
    { key: 'node', head: 'Peer', cell: ({ name }) => name },
    { key: 'address', head: 'Address', cell: ({ address }) => <code>{address}</code> },
    { key: 'asn', head: 'AS', cell: ({ asn }) => asn },
    { key: 'prefixes', head: 'Prefixes', cell: ({ received, sent }) => `${received} in, ${sent} out` },
    { key: 'state', head: 'State', cell: (one) => stateOf(one, now) },
  ]
}

function isAway({ state }: BgpSession): boolean {
  return state !== 'Established'
}

function stateOf({ state, since, reason }: BgpSession, now: number): string {
  const lasting = since === undefined ? state : `${state} for ${span(now - since)}`
  return reason === undefined ? lasting : `${lasting}: ${reason}`
}

function textOf({ kind, name, address, asn, state, reason }: BgpSession): string {
  return [kind, name, address, asn, state, reason].join(' ').toLowerCase()
}

function orderOf(sort: string): (a: BgpSession, b: BgpSession) => number {
  const byName = (a: BgpSession, b: BgpSession) => collator.compare(a.name, b.name)
  if (sort === 'node') return byName
  if (sort === '-node') return (a, b) => byName(b, a)
  return (a, b) => Number(isAway(b)) - Number(isAway(a)) || byName(a, b)
}
