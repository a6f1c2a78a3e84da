import { useEffect, useMemo, useState } from 'preact/hooks'
import type { PortView, ServiceView } from '../../services/view.ts'
import type { ServicesStatus } from '../status.ts'

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
    <section class="card peers" aria-labelledby="services">
      <h2 id="services">Services</h2>
      <label class="search">
        <span class="heard-only">Search Services</span>
        <input
          type="search"
          placeholder="Name, address, reason…"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <p class="found" role="status">
        {search === '' ? `${services.services} in all` : `${found.length} of ${rows.length} ports`}
      </p>
      {found.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Service</th>
              <th scope="col">Addresses</th>
              <th scope="col">Endpoints</th>
              <th scope="col">Left out</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, ROWS).map(({ name, port }) => (
              <Row key={`${name} ${port.addresses[0]}`} name={name} port={port} />
            ))}
          </tbody>
        </table>
      )}
      {found.length === 0 && <p class="empty">{rows.length === 0 ? 'There are no Services' : 'No Service matches'}</p>}
      {found.length > ROWS && <p class="empty">{found.length - ROWS} more: search for them</p>}
    </section>
  )
}

function Row({ name, port }: { name: string; port: PortView }) {
  const out = port.endpoints.filter(({ leftOut }) => leftOut !== undefined)
  const local = port.endpoints.filter((one) => one.isLocal && one.leftOut === undefined).length
  const used = port.endpoints.length - out.length
  const nodePort = port.nodePort === undefined ? [] : [`node port ${port.nodePort}`]
  return (
    <tr class={used === 0 ? 'bad' : ''}>
      <th scope="row">{name}</th>
      <td data-name="Addresses">
        <code>{[...port.addresses, ...nodePort].join(', ')}</code>
      </td>
      <td data-name="Endpoints">
        {used}, {local} of this node
      </td>
      <td data-name="Left out" class="state">
        {out.map(({ address, leftOut }) => `${address}: ${leftOut}`).join('; ')}
      </td>
    </tr>
  )
}

function textOf(name: string, { addresses, endpoints }: PortView): string {
  const words = endpoints.flatMap(({ address, node, leftOut }) => [address, node, leftOut])
  return [name, ...addresses, ...words].join(' ').toLowerCase()
}
