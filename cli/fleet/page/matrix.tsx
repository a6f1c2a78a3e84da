// biome-ignore-all lint/a11y/useSemanticElements: a fieldset is for a form.

// biome-ignore-all lint/a11y/noNoninteractiveTabindex: the arrow keys choose a pair.

// biome-ignore-all lint/a11y/noAriaHiddenOnFocusable: a canvas without tabindex has no focus.

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { PageAddress } from '../../../agent/page/address.ts'
import { Card, Command, Name } from '../../../agent/page/common.tsx'
import { type Go, useTheme, useWidth } from '../../../agent/page/hooks.ts'
import { roundTrip, SIGNS } from '../../../agent/page/peer-fields.ts'
import { openPen } from '../../../agent/page/pen.ts'
import type { PeerState } from '../../../agent/state/rows.ts'
import { printable } from '../../../lib/text/printable.ts'
import type { Fleet } from '../fleet.ts'
import { type Matrix, stateAt } from '../matrix.ts'
import type { ZonePair } from '../zones.ts'

/** The width of the names of the rows, and the widest and narrowest cell, in pixels. */
const [NAMES, WIDEST, NARROWEST] = [110, 22, 3]
/** Names are written where a cell is so high, in pixels. */
const ROOM = 11

interface Props {
  fleet: Fleet
  place: PageAddress
  go: Go
}

/** From each node to each node: rows send, columns receive. A lost node is a line, a lost zone a block. */
export function MatrixView({ fleet, place, go }: Props) {
  const { matrix, zones } = fleet
  return (
    <>
      {matrix ? (
        <Card id="matrix" title="From node to node" aside={<p>rows send, columns receive</p>}>
          <Picture matrix={matrix} selected={place.selected} select={(selected) => go({ selected })} />
          <Pair matrix={matrix} selected={place.selected} />
        </Card>
      ) : (
        <Card id="matrix" title="From node to node">
          <p class="empty">Above 300 nodes, zones stand for their nodes. Pairs has the worst of each node.</p>
        </Card>
      )}
      {zones.length > 0 && (
        <Card id="zones" title="From zone to zone">
          <Zones zones={zones} />
        </Card>
      )}
    </>
  )
}

interface PictureProps {
  matrix: Matrix
  /** `FROM>TO`. */
  selected: string
  select(pair: string): void
}

function Picture({ matrix, selected, select }: PictureProps) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [hovered, hover] = useState<readonly [number, number]>()
  const theme = useTheme()
  const count = matrix.names.length
  const cell = Math.max(Math.min(Math.floor((width - NAMES) / Math.max(count, 1)), WIDEST), NARROWEST)
  useLayoutEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, matrix, cell)
  }, [matrix, cell, width, theme])
  const at = (event: MouseEvent): readonly [number, number] | undefined => {
    const [to, from] = [Math.floor((event.offsetX - NAMES) / cell), Math.floor(event.offsetY / cell)]
    return to >= 0 && to < count && from >= 0 && from < count ? [from, to] : undefined
  }
  const nameOf = ([from, to]: readonly [number, number]) => `${matrix.names[from]}>${matrix.names[to]}`
  function keyed(event: KeyboardEvent): void {
    const [from = '', to = ''] = selected.split('>')
    const here = [Math.max(matrix.names.indexOf(from), 0), Math.max(matrix.names.indexOf(to), 0)] as const
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
    if (!step) return
    const next = here.map((n, i) => Math.min(Math.max(n + (step[i] ?? 0), 0), count - 1)) as [number, number]
    select(nameOf(next))
    event.preventDefault()
  }
  return (
    <div class="cells" ref={ref}>
      <div
        role="group"
        tabIndex={0}
        aria-label={`The ways between ${count} nodes. Arrow keys choose a pair, which is described below`}
        class="scroll"
        onKeyDown={keyed}
      >
        <canvas
          ref={canvas}
          aria-hidden="true"
          onPointerMove={(event) => hover(at(event))}
          onPointerLeave={() => hover(undefined)}
          onClick={(event) => {
            const pair = at(event)
            if (pair) select(nameOf(pair))
          }}
        />
      </div>
      <p class="found" aria-hidden="true">
        {hovered ? <Name>{wayWords(matrix, ...hovered)}</Name> : 'Point at a cell, or click it for both directions'}
      </p>
    </div>
  )
}

function wayWords(matrix: Matrix, from: number, to: number): string {
  const { names, rows } = matrix
  if (from === to) return `${names[from]} itself`
  const state = stateAt(matrix, from, to)
  const [lost, ms] = [rows[from]?.lost[to], rows[from]?.ms[to]]
  const parts = [state ?? 'nothing known', ...(lost ? [`${lost} % lost`] : []), ...(ms == null ? [] : [roundTrip(ms)])]
  return `${names[from]} → ${names[to]}: ${parts.join(', ')}`
}

// Both directions side by side.
function Pair({ matrix, selected }: { matrix: Matrix; selected: string }) {
  const [one = '', other = ''] = selected.split('>')
  const [from, to] = [matrix.names.indexOf(one), matrix.names.indexOf(other)]
  if (from < 0 || to < 0 || from === to) return null
  const [there, back] = [stateAt(matrix, from, to), stateAt(matrix, to, from)]
  const isBad = (state: PeerState | undefined) => state !== undefined && state !== 'reachable' && state !== 'unknown'
  return (
    <div class="both-ways" role="status">
      {[
        [from, to, there],
        [to, from, back],
      ].map(([a, b, state]) => (
        <p key={`${a}`} class={isBad(state as PeerState | undefined) ? 'bad' : ''}>
          {state !== undefined && (
            <i class={`sign ${state}`} aria-hidden="true">
              {SIGNS[state as PeerState]}
            </i>
          )}
          <Name>{wayWords(matrix, a as number, b as number)}</Name>
        </p>
      ))}
      {isBad(there) !== isBad(back) && there !== undefined && back !== undefined && <p class="bad">one way only</p>}
      <Command>{`ssh ${one} plumb trace ${one} ${other}`}</Command>
    </div>
  )
}

/** The zones as a table, from × to. */
export function Zones({ zones }: { zones: readonly ZonePair[] }) {
  const names = useMemo(() => [...new Set(zones.flatMap(({ from, to }) => [from, to]))].sort(), [zones])
  const pairs = useMemo(() => new Map(zones.map((one) => [`${one.from}>${one.to}`, one])), [zones])
  const words = (name: string) => (name === '' ? 'no zone' : name)
  return (
    <div class="matrix-of-zones">
      <table>
        <thead>
          <tr>
            <th scope="col">from, to</th>
            {names.map((name) => (
              <th key={name} scope="col">
                <Name>{words(name)}</Name>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {names.map((from) => (
            <tr key={from}>
              <th scope="row">
                <Name>{words(from)}</Name>
              </th>
              {names.map((to) => (
                <td key={to} data-name={words(to)}>
                  <ZoneCell pair={pairs.get(`${from}>${to}`)} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function ZoneCell({ pair }: { pair: ZonePair | undefined }) {
  if (!pair || pair.pairs === 0) return <>–</>
  const { pairs, bad, ms } = pair
  const state = bad === 0 ? 'reachable' : bad === pairs ? 'silent' : 'narrow'
  return (
    <>
      <i class={`sign ${state}`} aria-hidden="true">
        {SIGNS[state]}
      </i>
      {bad === 0 ? roundTrip(ms) || 'all answer' : `${bad} of ${pairs} lost`}
    </>
  )
}

function draw(canvas: HTMLCanvasElement, matrix: Matrix, cell: number): void {
  const { names } = matrix
  const pen = openPen(canvas, NAMES + names.length * cell, names.length * cell)
  if (!pen) return
  const { context } = pen
  const size = cell - (cell > 6 ? 1 : 0)
  context.font = `11px ${pen.font}`
  for (const [i, name] of names.entries()) {
    if (cell >= ROOM) {
      context.fillStyle = pen.colour('soft')
      context.fillText(printable(name), 0, i * cell + cell / 2 + 4, NAMES - 8)
    }
    context.fillStyle = pen.colour('edge')
    context.fillRect(NAMES + i * cell, i * cell, size, size)
    for (let j = 0; j < names.length; j++) {
      if (i === j) continue
      const state = stateAt(matrix, i, j) ?? 'unknown'
      pen.cell({ state, ms: matrix.rows[i]?.ms[j], x: NAMES + j * cell, y: i * cell, size })
    }
  }
}
