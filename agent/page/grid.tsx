// biome-ignore-all lint/a11y/useSemanticElements: a table of 5,000 cells takes seconds.

// biome-ignore-all lint/a11y/useFocusableInteractive: the grid has the focus, and names its active cell.

// biome-ignore-all lint/a11y/noAriaHiddenOnFocusable: a canvas without tabindex has no focus.

import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { printable } from '../../lib/text/printable.ts'
import { reach } from '../state/reachability.ts'
import { isBad, type PeerState, peerOf, type Row, rowName } from '../state/rows.ts'
import { clock, Name } from './common.tsx'
import { cellAt, type GridLayout, gridLayout, neighbour } from './grid-layout.ts'
import { useTheme, useWidth } from './hooks.ts'
import { grouped, SIGNS, STATES } from './peer-fields.ts'
import { openPen } from './pen.ts'

interface Props {
  rows: readonly Row[]
  /** Those that a search has not found are pale. */
  found: ReadonlySet<Row>
  group: string
  selected: string
  select(name: string): void
  open(name: string): void
}

/** A cell for each peer: its state by colour and sign, its round trip by the lightness of the colour. */
export function Grid({ rows, found, group, selected, select, open }: Props) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [hovered, hover] = useState<number>()
  const [isFocused, focus] = useState(false)
  const theme = useTheme()
  const groups = useMemo(() => grouped(rows, group), [rows, group])
  const sizes = groups.map(({ name, rows: all }) => `${name} ${all.length}`).join('\n')
  const drawn = useMemo(
    () =>
      gridLayout(
        groups.map(({ name, rows: all }) => ({ name: headOf(name, all), count: all.length })),
        width,
      ),
    [sizes, width],
  )
  const ordered = useMemo(() => groups.flatMap(({ rows: all }) => all), [groups])
  const at = Math.max(
    ordered.findIndex((row) => rowName(row) === selected),
    0,
  )
  useLayoutEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, { width, drawn, ordered, found })
  }, [drawn, ordered, found, theme, width])
  const indexOf = (event: MouseEvent) => cellAt(drawn, event.offsetX, event.offsetY)
  function keyed(event: KeyboardEvent): void {
    const next = neighbour(drawn, at, event.key)
    const row = next === undefined ? undefined : ordered[next]
    const here = ordered[at]
    if (row) select(rowName(row))
    else if (event.key === 'Enter' && here) open(rowName(here))
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const shown = hovered ?? (isFocused ? at : undefined)
  return (
    <div class="cells" ref={ref}>
      <div
        role="grid"
        aria-label={`${ordered.length} peers. Arrow keys go from one to the next, Enter opens it`}
        aria-readonly="true"
        tabIndex={0}
        aria-activedescendant="cell"
        onKeyDown={keyed}
        onFocus={() => focus(true)}
        onBlur={() => focus(false)}
        style={{ height: `${drawn.height}px` }}
      >
        <canvas
          ref={canvas}
          aria-hidden="true"
          onPointerMove={(event) => hover(indexOf(event))}
          onPointerLeave={() => hover(undefined)}
          onClick={(event) => {
            const row = ordered[indexOf(event) ?? -1]
            if (row) open(rowName(row))
          }}
        />
        <Here row={ordered[at]} at={drawn.cells[at]} size={drawn.size} isShown={isFocused || selected !== ''} />
      </div>
      {shown !== undefined && <Tip row={ordered[shown]} drawn={drawn} at={shown} width={width} />}
      <Legend />
    </div>
  )
}

interface HereProps {
  row: Row | undefined
  at: GridLayout['cells'][number] | undefined
  size: number
  isShown: boolean
}

// The one cell that a screen reader and the keys are at.
function Here({ row, at, size, isShown }: HereProps) {
  if (!row || !at) return null
  const place = { left: `${at.x}px`, top: `${at.y}px`, width: `${size}px`, height: `${size}px` }
  return (
    <div role="row">
      <div id="cell" role="gridcell" aria-selected={isShown} class={isShown ? 'here' : ''} style={place}>
        <span class="heard-only">{describe(row)}</span>
      </div>
    </div>
  )
}

function describe(row: Row): string {
  return `${printable(rowName(row))}: ${reach(peerOf(row))}${row.since === undefined ? '' : `, since ${clock(row.since)}`}`
}

interface TipProps {
  row: Row | undefined
  drawn: GridLayout
  at: number
  width: number
}

function Tip({ row, drawn: { cells, size }, at, width }: TipProps) {
  const cell = cells[at]
  if (!row || !cell) return null
  const left = Math.min(Math.max(cell.x, 0), Math.max(width - 260, 0))
  return (
    <div class="tip" style={{ left: `${left}px`, top: `${cell.y + size + 6}px` }} aria-hidden="true">
      <b>
        <Name>{rowName(row)}</Name>
      </b>
      <span>{reach(peerOf(row))}</span>
      {row.since !== undefined && <span>since {clock(row.since)}</span>}
      {row.zone !== undefined && (
        <span>
          zone <Name>{row.zone}</Name>
        </span>
      )}
    </div>
  )
}

const TOLD: Readonly<Record<PeerState, string>> = {
  reachable: 'reachable, the darker the slower',
  narrow: 'loses packets of full size',
  silent: 'does not answer',
  away: 'away: Kubernetes has no news of it either',
  unreachable: 'cannot be reached',
  unknown: 'not asked yet',
}

function Legend() {
  return (
    <ul class="legend" aria-label="Signs">
      {STATES.toReversed().map((state) => (
        <li key={state}>
          <i class={`sign ${state}`} aria-hidden="true">
            {SIGNS[state]}
          </i>
          {TOLD[state]}
        </li>
      ))}
    </ul>
  )
}

function headOf(name: string, rows: readonly Row[]): string {
  if (name === '') return ''
  const bad = rows.filter(isBad).length
  return `${printable(name)}: ${rows.length}${bad === 0 ? '' : `, ${bad} lost`}`
}

interface Drawing {
  width: number
  drawn: GridLayout
  ordered: readonly Row[]
  found: ReadonlySet<Row>
}

function draw(canvas: HTMLCanvasElement, { width, drawn, ordered, found }: Drawing): void {
  const { height, size, cells, heads } = drawn
  const pen = openPen(canvas, width, height)
  if (!pen) return
  const { context } = pen
  context.font = `12px ${pen.font}`
  context.fillStyle = pen.colour('soft')
  for (const { name, y } of heads) context.fillText(name, 0, y, width)
  for (const [i, { state, ms }] of ordered.entries()) {
    const cell = cells[i]
    if (!cell) continue
    context.globalAlpha = found.size === ordered.length || found.has(ordered[i] as Row) ? 1 : 0.15
    pen.cell({ state, ms, ...cell, size })
  }
  context.globalAlpha = 1
}
