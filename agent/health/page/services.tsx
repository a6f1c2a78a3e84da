import { useEffect, useMemo, useState } from 'preact/hooks'
import type { PortView, ServiceView } from '../../services/view.ts'
import type { ServicesStatus } from '../status.ts'
import { Listing, type Row } from './listing.tsx'

/** The most rows that are shown. A search finds the others. */
const ROWS = 50

/** A table of the Services of this node. They are fetched when their numbers change, because there may be many. */
export function Services({ services }: { services: ServicesStatus }) {
  const [all, setAll] = useState<readonly ServiceView[]>([])
  const [search, setSearch] = useState('')
  const { frontends, endpoints, programming } = services
  useEffect(() => {
    const end = new AbortController()
    fetch('services', { signal: end.signal })
      .then((answer) => answer.json() as Promise<readonly ServiceView[] | null>)
      .then((found) => setAll(found ?? []))
      .catch(() => {})
    return () => end.abort()
  }, [services.services, frontends, endpoints, programming.count])
  const rows = useMemo(
    () => all.flatMap((one) => one.ports.map((port) => ({ name: `${one.namespace}/${one.name}`, port }))),
    [all],
  )
  const found = useMemo(
    () => rows.filter(({ name, port }) => textOf(name, port).includes(search.toLowerCase())),
    [rows, search],
  )
  return (
    <Listing
      id="services"
      title="Services"
      label="Search Services"
      placeholder="Name, address, reason…"
      search={search}
      setSearch={setSearch}
      count={search === '' ? `${services.services} in all` : `${found.length} of ${rows.length} ports`}
      heads={['Service', 'Addresses', 'Endpoints', 'Left out']}
      hasState
      rows={found.slice(0, ROWS).map(rowOf)}
      empty={rows.length === 0 ? 'There are no Services' : 'No Service matches'}
    >
      {found.length > ROWS && <p class="empty">{found.length - ROWS} more: search for them</p>}
    </Listing>
  )
}

function rowOf({ name, port }: { name: string; port: PortView }): Row {
  const out = port.endpoints.filter(({ leftOut }) => leftOut !== undefined)
  const local = port.endpoints.filter((one) => one.isLocal && one.leftOut === undefined).length
  const used = port.endpoints.length - out.length
  const nodePort = port.nodePort === undefined ? [] : [`node port ${port.nodePort}`]
  return {
    key: `${name} ${port.addresses[0]}`,
    isBad: used === 0,
    cells: [
      name,
      <code key="a">{[...port.addresses, ...nodePort].join(', ')}</code>,
      `${used}, ${local} of this node`,
      out.map(({ address, leftOut }) => `${address}: ${leftOut}`).join('; '),
    ],
  }
}

function textOf(name: string, { addresses, endpoints }: PortView): string {
  const words = endpoints.flatMap(({ address, node, leftOut }) => [address, node, leftOut])
  return [name, ...addresses, ...words].join(' ').toLowerCase()
}
