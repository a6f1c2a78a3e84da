import { useMemo } from 'preact/hooks'
import type { PortView, ServiceView } from '../services/view.ts'
import { durationWords } from '../state/phrases.ts'
import { collator } from '../state/reachability.ts'
import { PROGRAMMING_BUCKETS } from '../state/status.ts'
import { Card, Codes } from './common.tsx'
import type { Fields } from './filter.ts'
import { useList } from './hooks.ts'
import { type Column, Table } from './table.tsx'
import type { ViewProps } from './view.ts'

/** A port of a Service in one family. */
interface Port extends PortView {
  readonly service: string
  readonly namespace: string
  readonly used: number
  readonly local: number
  readonly notes: readonly string[]
}

const COLUMNS: readonly Column<Port>[] = [
  {
    key: 'svc',
    head: 'Service',
    cell: ({ service, notes }) => (
      <>
        {service}
        {notes.map((note) => (
          <span key={note} class="note">
            {note}
          </span>
        ))}
      </>
    ),
  },
  {
    key: 'addresses',
    head: 'Addresses',
    cell: ({ addresses, nodePort }) => (
      <Codes of={[...addresses, ...(nodePort === undefined ? [] : [`node port ${nodePort}`])]} />
    ),
  },
  { key: 'endpoints', head: 'Endpoints', cell: ({ used, local }) => `${used}, ${local} of this node` },
  { key: 'nodes', head: 'On nodes', cell: (port) => nodesOf(port) },
  { key: 'state', head: 'Left out', cell: (port) => leftOut(port).join('; ') },
]
const FIELDS: Fields<Port> = {
  svc: { kind: 'text', of: ({ service }) => service },
  ns: { kind: 'exact', of: ({ namespace }) => namespace },
  state: { kind: 'exact', of: (port) => stateOf(port) },
  node: { kind: 'text', of: ({ endpoints }) => endpoints.flatMap(({ node }) => node ?? []) },
  endpoints: { kind: 'number', units: { '': 1 }, of: ({ used }) => used },
  text: { kind: 'text', of: textOf },
}

/** The Services of this node. They are asked for when their numbers change, because there may be many. */
export function Services({ known, place, go }: ViewProps) {
  const { services } = known.status
  const key =
    services && `${services.services} ${services.frontends} ${services.endpoints} ${services.programming.count}`
  const views = useList<readonly ServiceView[] | null>('services', key)
  const all = useMemo(() => (views ?? []).flatMap(portsOf), [views])
  const words = services ? durationWords(services.programming, PROGRAMMING_BUCKETS) : ''
  const programmed = words && `From a change to the kernel: ${words}`
  return (
    <Card id="services" title="Services" aside={<p>{programmed}</p>}>
      <Table
        what={all.length === 1 ? 'port' : 'ports'}
        all={all}
        columns={COLUMNS}
        keyOf={keyOf}
        isBad={({ used }) => used === 0}
        fields={FIELDS}
        textOf={textOf}
        example="ns:shop state:bad endpoints<2"
        orderOf={orderOf}
        sortable={['svc', 'endpoints']}
        place={place}
        go={go}
        empty="There are no Services"
      />
    </Card>
  )
}

function portsOf({ namespace, name, notes, ports }: ServiceView): Port[] {
  return ports.map((port) => {
    const used = port.endpoints.filter((one) => one.leftOut === undefined)
    const local = used.filter((one) => one.isLocal).length
    return { ...port, service: `${namespace}/${name}`, namespace, notes, used: used.length, local }
  })
}

function keyOf({ service, addresses, name }: Port): string {
  return `${service} ${addresses[0] ?? name}`
}

function leftOut({ endpoints }: Port): string[] {
  return endpoints.flatMap(({ address, leftOut: why }) => (why === undefined ? [] : [`${address}: ${why}`]))
}

// How many endpoints each node has, the most first.
function nodesOf({ endpoints }: Port): string {
  const used = endpoints.filter((one) => one.leftOut === undefined)
  const nodes = [...Map.groupBy(used, ({ node }) => node ?? 'no node')].sort(([, a], [, b]) => b.length - a.length)
  const words = nodes.slice(0, 3).map(([node, all]) => `${node} ${all.length}`)
  return [...words, ...(nodes.length > 3 ? [`${nodes.length - 3} more nodes`] : [])].join(', ')
}

function stateOf(port: Port): readonly string[] {
  if (port.used === 0) return ['empty', 'bad']
  return leftOut(port).length > 0 ? ['part'] : ['all']
}

function textOf(port: Port): string {
  const { service, addresses, nodePort, endpoints, notes } = port
  const words = endpoints.flatMap(({ address, node, leftOut: why }) => [address, node, why])
  return [service, ...addresses, nodePort, ...words, ...notes].join(' ').toLowerCase()
}

// Without an order, those without endpoints are first.
function orderOf(sort: string): (a: Port, b: Port) => number {
  const byName = (a: Port, b: Port) => collator.compare(keyOf(a), keyOf(b))
  if (sort === 'svc') return byName
  if (sort === '-svc') return (a, b) => byName(b, a)
  if (sort === '-endpoints') return (a, b) => b.used - a.used || byName(a, b)
  if (sort === 'endpoints') return (a, b) => a.used - b.used || byName(a, b)
  return (a, b) => Number(a.used > 0) - Number(b.used > 0) || byName(a, b)
}
