import { useMemo, useState } from 'preact/hooks'
import { span } from '../phrases.ts'
import type { BgpSession, BgpStatus } from '../status.ts'
import { Listing } from './listing.tsx'

/** The most rows that are shown. A search finds the others. */
const ROWS = 50

/** A table of the sessions of BGP, with those first that are not established. `now` is by the agent's clock. */
export function Bgp({ bgp, now }: { bgp: BgpStatus; now: number }) {
  const [search, setSearch] = useState('')
  const { asn, pid, announced, sessions } = bgp
  const sorted = useMemo(() => [...sessions.filter(isAway), ...sessions.filter((one) => !isAway(one))], [sessions])
  const found = sorted.filter((one) => textOf(one).includes(search.toLowerCase()))
  const up = sessions.length - sessions.filter(isAway).length
  const head = `AS ${asn}, prefixes announced: ${announced}, ${pid === undefined ? 'BIRD does not run' : `${up} of ${sessions.length} established`}`
  return (
    <Listing
      id="bgp"
      title="BGP"
      label="Search sessions"
      placeholder="Name, address, reason…"
      search={search}
      setSearch={setSearch}
      count={search === '' ? head : `${found.length} of ${sessions.length}`}
      heads={['Peer', 'Address', 'AS', 'Prefixes', 'State']}
      hasState
      rows={found.slice(0, ROWS).map((one) => ({
        key: `${one.kind} ${one.address}`,
        isBad: isAway(one),
        cells: [
          one.name,
          <code key="a">{one.address}</code>,
          one.asn,
          `${one.received} in, ${one.sent} out`,
          stateOf(one, now),
        ],
      }))}
      empty={sessions.length === 0 ? 'There are no sessions' : 'No session matches'}
    >
      {found.length > ROWS && <p class="empty">{found.length - ROWS} more: search for them</p>}
    </Listing>
  )
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
