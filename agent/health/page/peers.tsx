import { useMemo, useState } from 'preact/hooks'
import { line } from '../phrases.ts'
import { nameOf, ordered, reach, trouble, unreachable } from '../reachability.ts'
import type { Peer } from '../status.ts'
import { Both } from './facts.tsx'
import { Listing, type Row } from './listing.tsx'

/** The number of rows at first (ROWS), and the added rows per click (MORE). Ten thousand rows take seconds. */
const ROWS = 25
const MORE = 100

interface PeersProps {
  peers: readonly Peer[]
  search: string
  setSearch: (text: string) => void
}

/** A table of all peers, with the unreachable peers first. The search covers the text of each row. */
export function Peers({ peers, search, setSearch }: PeersProps) {
  const [rows, setRows] = useState(ROWS)
  const sorted = useMemo(() => {
    const all = ordered(peers)
    return [...unreachable(all), ...all.filter((peer) => trouble(peer) === undefined)]
  }, [peers])
  const found = useMemo(() => sorted.filter((peer) => matches(peer, search)), [sorted, search])
  return (
    <Listing
      id="peers"
      title="Peers"
      label="Search peers"
      placeholder="Name, address, reason…"
      search={search}
      setSearch={setSearch}
      count={search === '' ? `${peers.length} in all` : `${found.length} of ${peers.length}`}
      heads={['Node', 'Pods', 'Address', 'Backend', 'State']}
      hasState
      rows={found.slice(0, rows).map(rowOf)}
      empty={peers.length === 0 ? 'No other node has a subnet yet' : 'No peer matches'}
    >
      {found.length > rows && (
        <button type="button" class="more" onClick={() => setRows(rows + MORE)}>
          Show {Math.min(MORE, found.length - rows)} more of {found.length - rows}
        </button>
      )}
    </Listing>
  )
}

function rowOf(peer: Peer): Row {
  const { subnets, ips, backend } = peer
  return {
    key: line(subnets),
    isBad: trouble(peer) !== undefined,
    cells: [
      nameOf(peer),
      <Both key="s" of={subnets} />,
      <Both key="i" of={ips} />,
      backend,
      peer.problem ?? reach(peer),
    ],
  }
}

function matches(peer: Peer, search: string): boolean {
  const { subnets, ips, backend } = peer
  const text = [peer.node, subnets.v4, subnets.v6, ips.v4, ips.v6, backend, reach(peer)].join(' ').toLowerCase()
  const words = search.toLowerCase().split(/\s+/)
  return words.every((word) => text.includes(word))
}
