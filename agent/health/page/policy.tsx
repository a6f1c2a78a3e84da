import { useEffect, useMemo, useState } from 'preact/hooks'
import type { PodSummary } from '../../policy/view.ts'
import type { PolicyStatus } from '../status.ts'

/** The most rows that are shown. A search finds the others. */
const ROWS = 50

/** A table of the pods of this node with the policies that select them. Fetched after each step of the policies. */
export function Policy({ policy }: { policy: PolicyStatus }) {
  const [all, setAll] = useState<readonly PodSummary[]>([])
  const [search, setSearch] = useState('')
  const { pods, steps } = policy
  useEffect(() => {
    const end = new AbortController()
    fetch('policy', { signal: end.signal })
      .then((answer) => answer.json() as Promise<readonly PodSummary[] | null>)
      .then((found) => setAll(found ?? []))
      .catch(() => {})
    return () => end.abort()
  }, [steps.count])
  const found = useMemo(() => all.filter((one) => textOf(one).includes(search.toLowerCase())), [all, search])
  return (
    <section class="card peers" aria-labelledby="policy">
      <h2 id="policy">Network policy</h2>
      <label class="search">
        <span class="heard-only">Search pods and policies</span>
        <input
          type="search"
          placeholder="Pod, address, policy…"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <p class="found" role="status">
        {search === '' ? `${pods} pods` : `${found.length} of ${all.length} pods`}
      </p>
      {found.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Pod</th>
              <th scope="col">Addresses</th>
              <th scope="col">Ingress</th>
              <th scope="col">Egress</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, ROWS).map((one) => (
              <Row key={one.pod} one={one} />
            ))}
          </tbody>
        </table>
      )}
      {found.length === 0 && <p class="empty">{all.length === 0 ? 'There are no pods' : 'No pod matches'}</p>}
      {found.length > ROWS && <p class="empty">{found.length - ROWS} more: search for them</p>}
    </section>
  )
}

function Row({ one: { pod, addresses, isClosed, ingress, egress } }: { one: PodSummary }) {
  const words = (policies: readonly string[]) => (isClosed ? 'closed' : policies.join(', ') || 'open')
  return (
    <tr class={isClosed ? 'bad' : ''}>
      <th scope="row">{pod}</th>
      <td data-name="Addresses">
        <code>{addresses.join(', ')}</code>
      </td>
      <td data-name="Ingress">{words(ingress)}</td>
      <td data-name="Egress">{words(egress)}</td>
    </tr>
  )
}

function textOf({ pod, addresses, ingress, egress }: PodSummary): string {
  return [pod, ...addresses, ...ingress, ...egress].join(' ').toLowerCase()
}
