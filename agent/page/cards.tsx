import type { Base } from '../state/messages.ts'
import { reach } from '../state/reachability.ts'
import { isBad, peerOf, type Row, rowName } from '../state/rows.ts'
import { Both, Name } from './common.tsx'
import { useWidth } from './hooks.ts'
import { layout, type PagePoint } from './layout.ts'
import { SIGNS } from './peer-fields.ts'

interface Props {
  status: Base
  rows: readonly Row[]
  open(name: string): void
}

/** A few peers around this node, with a line for the way of packets to each. */
export function Cards({ status, rows, open }: Props) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const drawn = layout(rows.length, Math.max(width, 260))
  const card = (row: Row) => <NodeCard row={row} open={open} />
  const label = `The nodes that ${status.node} sends packets to`
  // Where there is no room for a picture, the cards stand one after the other.
  if (width > 0 && !drawn)
    return (
      <div class="cards flow" ref={ref}>
        <ul aria-label={label}>
          {rows.map((row) => (
            <li key={row.n}>{card(row)}</li>
          ))}
        </ul>
      </div>
    )
  const { centre, places, height } = drawn ?? { centre: { x: 0, y: 0 }, places: [], height: 0 }
  return (
    <div class="cards" ref={ref} style={{ height: `${height}px` }}>
      {width > 0 && (
        <>
          <svg width={width} height={height} aria-hidden="true">
            {rows.map((row, i) => (
              <Edge key={row.n} row={row} from={centre} to={places[i] as PagePoint} />
            ))}
          </svg>
          <div class="node self" style={spot(centre)}>
            <b>
              <Name>{status.node}</Name>
            </b>
            <Both of={status.subnets} />
            <small>this node</small>
          </div>
          <ul aria-label={label}>
            {rows.map((row, i) => (
              <li key={row.n} style={spot(places[i] as PagePoint)}>
                {card(row)}
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  )
}

function NodeCard({ row, open }: { row: Row; open(name: string): void }) {
  return (
    <button type="button" class={`node ${isBad(row) ? 'bad' : ''}`} onClick={() => open(rowName(row))}>
      <span>
        <i class={`sign ${row.state}`} aria-hidden="true">
          {SIGNS[row.state]}
        </i>
        <b>
          <Name>{rowName(row)}</Name>
        </b>
      </span>
      <code>{row.v4 ?? row.v6}</code>
      <span class="heard-only">{reach(peerOf(row))}</span>
    </button>
  )
}

// Packets go through a tunnel (a wide line with a thin one in it) or by a direct route.
function Edge({ row, from, to }: { row: Row; from: PagePoint; to: PagePoint }) {
  const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y }
  const isStraight = /^(host-gw|alloc)$/.test(row.backend)
  return (
    <g class={`edge ${isBad(row) ? 'bad' : ''}`}>
      {!isStraight && <line class="tube" {...ends} />}
      <line {...ends} />
    </g>
  )
}

function spot({ x, y }: PagePoint): { left: string; top: string } {
  return { left: `${x}px`, top: `${y}px` }
}
