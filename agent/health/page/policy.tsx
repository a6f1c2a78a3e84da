import { useEffect, useMemo, useState } from 'preact/hooks'
import type { PodSummary } from '../../policy/view.ts'
import type { PolicyStatus } from '../status.ts'
import { Listing, type Row } from './listing.tsx'

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
    <Listing
      id="policy"
      title="Network policy"
      label="Search pods and policies"
      placeholder="Pod, address, policy…"
      search={search}
      setSearch={setSearch}
      count={search === '' ? `${pods} pods` : `${found.length} of ${all.length} pods`}
      heads={['Pod', 'Addresses', 'Ingress', 'Egress']}
      rows={found.slice(0, ROWS).map(rowOf)}
      empty={all.length === 0 ? 'There are no pods' : 'No pod matches'}
    >
      {found.length > ROWS && <p class="empty">{found.length - ROWS} more: search for them</p>}
    </Listing>
  )
}

function rowOf({ pod, addresses, isClosed, ingress, egress }: PodSummary): Row {
  const words = (policies: readonly string[]) => (isClosed ? 'closed' : policies.join(', ') || 'open')
  return {
    key: pod,
    isBad: isClosed,
    cells: [pod, <code key="a">{addresses.join(', ')}</code>, words(ingress), words(egress)],
  }
}

function textOf({ pod, addresses, ingress, egress }: PodSummary): string {
  return [pod, ...addresses, ...ingress, ...egress].join(' ').toLowerCase()
}
