import { useMemo, useState } from 'preact/hooks'
import { line } from '../phrases.ts'
import { nameOf, ordered, reach, trouble, unreachable } from '../reachability.ts'
import type { Peer } from '../status.ts'
import { Both } from './facts.tsx'

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
    <section class="card peers" aria-labelledby="peers">
      <h2 id="peers">Peers</h2>
      <label class="search">
        <span class="heard-only">Search peers</span>
        <input
          type="search"
          placeholder="Name, address, reason…"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <p class="found" role="status">
        {search === '' ? `${peers.length} in all` : `${found.length} of ${peers.length}`}
      </p>
      {found.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">Pods</th>
              <th scope="col">Address</th>
              <th scope="col">Backend</th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, rows).map((peer) => (
              <Row key={line(peer.subnets)} peer={peer} />
            ))}
          </tbody>
        </table>
      )}
      {found.length === 0 && (
        <p class="empty">{peers.length === 0 ? 'No other node has a subnet yet' : 'No peer matches'}</p>
      )}
      {found.length > rows && (
        <button type="button" class="more" onClick={() => setRows(rows + MORE)}>
          Show {Math.min(MORE, found.length - rows)} more of {found.length - rows}
        </button>
      )}
    </section>
  )
}

function Row({ peer }: { peer: Peer }) {
  const { subnets, ips, backend } = peer
  return (
    <tr class={trouble(peer) === undefined ? '' : 'bad'}>
      <th scope="row">{nameOf(peer)}</th>
      <td data-name="Pods">
        <Both of={subnets} />
      </td>
      <td data-name="Address">
        <Both of={ips} />
      </td>
      <td data-name="Backend">{backend}</td>
      <td data-name="State" class="state">
        {peer.problem ?? reach(peer)}
      </td>
    </tr>
  )
}

function matches(peer: Peer, search: string): boolean {
  const { subnets, ips, backend } = peer
  const text = [peer.node, subnets.v4, subnets.v6, ips.v4, ips.v6, backend, reach(peer)].join(' ').toLowerCase()
  const words = search.toLowerCase().split(/\s+/)
  return words.every((word) => text.includes(word))
}
