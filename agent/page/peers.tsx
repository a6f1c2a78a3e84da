import { useMemo } from 'preact/hooks'
import { reach } from '../state/reachability.ts'
import { isBad, peerOf, type Row, rowName } from '../state/rows.ts'
import { Cards } from './cards.tsx'
import { Both, Card, clock, Name } from './common.tsx'
import { Grid } from './grid.tsx'
import type { Go } from './hooks.ts'
import { MOST_CARDS } from './layout.ts'
import { Peer } from './peer.tsx'
import {
  fieldText,
  GROUPS,
  lossOf,
  named,
  ORDERS,
  orderOf,
  peerFields,
  roundTrip,
  SIGNS,
  usualGroup,
} from './peer-fields.ts'
import { type Column, Table } from './table.tsx'
import type { ViewProps } from './view.ts'

const COLUMNS: readonly Column<Row>[] = [
  { key: 'node', head: 'Node', cell: (row) => <Name>{rowName(row)}</Name> },
  {
    key: 'state',
    head: 'State',
    cell: (row) => (
      <span key={row.state} class={isFresh(row) ? 'told' : ''}>
        <i class={`sign ${row.state}`} aria-hidden="true">
          {SIGNS[row.state]}
        </i>
        {reach(peerOf(row)).replace(/^reachable.*/, 'reachable')}
      </span>
    ),
  },
  { key: 'rtt', head: 'Round trip', isNumber: true, cell: ({ ms }) => roundTrip(ms) },
  { key: 'loss', head: 'Loss', isNumber: true, cell: (row) => (lossOf(row) === undefined ? '' : `${lossOf(row)} %`) },
  { key: 'since', head: 'Since', cell: ({ since }) => (since === undefined ? '' : clock(since)) },
  { key: 'zone', head: 'Zone', cell: ({ zone }) => <Name>{zone ?? ''}</Name> },
  { key: 'pods', head: 'Pods', cell: ({ v4, v6 }) => <Both of={{ v4, v6 }} /> },
  { key: 'address', head: 'Address', cell: ({ ip4, ip6 }) => <Both of={{ v4: ip4, v6: ip6 }} /> },
  {
    key: 'backend',
    head: 'Backend',
    cell: ({ backend, version }) => (version === undefined ? backend : `${backend}, ${version}`),
  },
]

// The browser's clock may differ. Then nothing glows, or it does once more.
function isFresh({ since }: Row): boolean {
  return since !== undefined && Math.abs(Date.now() - since) < 3000
}

/** All peers: a picture of them, and a table with a search. Or one of them. */
export function Peers({ known, place, go, now }: ViewProps) {
  const rows = useMemo(() => named(known.peers.values()), [known.peers])
  const minute = Math.floor(now / 60_000)
  const fields = useMemo(() => peerFields(() => minute * 60_000), [minute])
  const { item } = place
  if (item !== undefined) {
    const row = rows.find((one) => rowName(one) === item) ?? rows.find(({ v4, v6 }) => item === v4 || item === v6)
    return <Peer row={row} name={item} known={known} now={now} go={go} />
  }
  const hasZones = rows.some(({ zone }) => zone !== undefined)
  const group = place.group === '' ? usualGroup(rows) : place.group
  const open = (name: string) => go({ item: name, selected: name }, true)
  const isFew = rows.length <= MOST_CARDS
  return (
    <Card id="peers" title="Peers" aside={!isFew && <Groups group={group} go={go} />}>
      <Table
        what={rows.length === 1 ? 'peer' : 'peers'}
        all={rows}
        columns={hasZones ? COLUMNS : WITHOUT_ZONES}
        keyOf={rowName}
        isBad={isBad}
        fields={fields}
        textOf={fieldText}
        example="state:bad zone:b rtt>5 !node-7"
        orderOf={orderOf}
        sortable={Object.keys(ORDERS)}
        place={place}
        go={go}
        item={rowName}
        empty="No other node has a subnet yet"
        above={(found) =>
          rows.length === 0 ? null : isFew ? (
            <Cards status={known.status} rows={rows} open={open} />
          ) : (
            <Cells rows={rows} found={found} group={group} place={place} go={go} open={open} />
          )
        }
      />
    </Card>
  )
}

const WITHOUT_ZONES = COLUMNS.filter(({ key }) => key !== 'zone')

interface CellsProps extends Pick<ViewProps, 'place' | 'go'> {
  rows: readonly Row[]
  found: readonly Row[]
  group: string
  open(name: string): void
}

function Cells({ rows, found, group, place, go, open }: CellsProps) {
  const set = useMemo(() => new Set(found), [found])
  return (
    <Grid
      rows={rows}
      found={set}
      group={group}
      selected={place.selected}
      select={(name) => go({ selected: name })}
      open={open}
    />
  )
}

function Groups({ group, go }: { group: string; go: Go }) {
  return (
    <label class="groups">
      Group by{' '}
      <select value={group} onChange={(event) => go({ group: event.currentTarget.value })}>
        <option value="none">nothing</option>
        {Object.keys(GROUPS).map((name) => (
          <option key={name} value={name}>
            {name === 'network' ? '/16' : name}
          </option>
        ))}
      </select>
    </label>
  )
}
