import { Component, type ComponentChildren } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { PageAddress } from './address.ts'
import { type Fields, readFilter } from './filter.ts'
import { type Go, useCalmOrder } from './hooks.ts'

/** The number of rows at first, and how many follow when the end comes into sight. */
const ROWS = 50
const MORE = 100

/** A column of a table. The first one names the row. */
export interface Column<T> {
  readonly key: string
  readonly head: string
  cell(one: T): ComponentChildren
  /** Numbers stand on the right. */
  readonly isNumber?: boolean
}

interface Props<T> {
  /** What the things of the table are, such as `peers`. */
  what: string
  all: readonly T[]
  columns: readonly Column<T>[]
  keyOf(one: T): string
  isBad(one: T): boolean
  /** The keys of the search, and all words of a thing in small letters. */
  fields: Fields<T>
  textOf(one: T): string
  /** What can be typed, as an example. */
  example: string
  /** The order of a column (with `-` the other way round), and without one the usual order. */
  orderOf(sort: string): (a: T, b: T) => number
  /** The columns that can be sorted by. */
  sortable: readonly string[]
  place: PageAddress
  go: Go
  /** Where a thing is shown by itself. */
  item?(one: T): string
  /** What stands there when there is nothing at all. */
  empty: string
  /** What stands above the table, for what was found. */
  above?(found: readonly T[]): ComponentChildren
}

/** A table with a search. Its words, the order and the selected row are in the address. */
export function Table<T>(props: Props<T>) {
  const { what, all, columns, keyOf, isBad, fields, textOf, example, orderOf, sortable, place, go, item, empty } = props
  const filter = useMemo(() => readFilter(place.q, fields, textOf), [place.q, fields, textOf])
  const sorted = useMemo(() => all.filter(filter.matches).sort(orderOf(place.sort)), [all, filter, place.sort])
  const [found, held] = useCalmOrder(sorted, keyOf, `${place.q} ${place.sort}`)
  const [shown, more, end] = useShown(found.length, `${place.q} ${place.sort}`)
  const count = found.length === all.length ? `${all.length} ${what}` : `${found.length} of ${all.length} ${what}`
  return (
    <>
      <div class="search">
        <label>
          <span class="heard-only">Search {what}</span>
          <input
            type="search"
            placeholder={example}
            value={place.q}
            aria-describedby="mistakes"
            onInput={(event) => go({ q: event.currentTarget.value })}
          />
        </label>
        <p class="found" role="status">
          {count}
        </p>
        <p id="mistakes" class="mistakes">
          {filter.mistakes.join('; ')}
        </p>
      </div>
      {props.above?.(found)}
      {found.length > 0 ? (
        <table {...held}>
          <thead>
            <tr>
              {columns.map((column) => (
                <Head key={column.key} column={column} canSort={sortable.includes(column.key)} place={place} go={go} />
              ))}
            </tr>
          </thead>
          <tbody>
            {found.slice(0, shown).map((one) => (
              <Line
                key={keyOf(one)}
                one={one}
                name={keyOf(one)}
                columns={columns}
                isBad={isBad(one)}
                isSelected={keyOf(one) === place.selected}
                open={item && (() => go({ item: item(one), selected: keyOf(one) }, true))}
              />
            ))}
          </tbody>
        </table>
      ) : (
        <p class="empty">{all.length === 0 ? empty : `Nothing matches among ${all.length} ${what}`}</p>
      )}
      {found.length > shown && (
        <p class="more" ref={end}>
          <button type="button" onClick={more}>
            Show {Math.min(MORE, found.length - shown)} more of {found.length - shown}
          </button>
        </p>
      )}
    </>
  )
}

interface HeadProps<T> {
  column: Column<T>
  canSort: boolean
  place: PageAddress
  go: Go
}

function Head<T>({ column: { key, head, isNumber }, canSort, place: { sort }, go }: HeadProps<T>) {
  const by = sort.replace(/^-/, '')
  const isDown = sort.startsWith('-')
  const order = by !== key ? 'none' : isDown ? 'descending' : 'ascending'
  const next = by !== key ? `-${key}` : isDown ? key : ''
  return (
    <th scope="col" class={isNumber ? 'number' : ''} {...(canSort && { 'aria-sort': order })}>
      {canSort ? (
        <button type="button" onClick={() => go({ sort: next })}>
          {head}
          <span aria-hidden="true">{{ none: '', descending: ' ▾', ascending: ' ▴' }[order]}</span>
        </button>
      ) : (
        head
      )}
    </th>
  )
}

interface LineProps<T> {
  one: T
  name: string
  columns: readonly Column<T>[]
  isBad: boolean
  isSelected: boolean
  open: (() => void) | undefined
}

// Most rows are as before when something changes.
class Line<T> extends Component<LineProps<T>> {
  override shouldComponentUpdate(next: LineProps<T>): boolean {
    const { one, columns, isBad, isSelected } = this.props
    return one !== next.one || columns !== next.columns || isBad !== next.isBad || isSelected !== next.isSelected
  }
  override render() {
    const { one, name, columns, isBad, isSelected, open } = this.props
    const [first, ...others] = columns
    if (!first) return null
    const classes = `${isBad ? 'bad' : ''} ${isSelected ? 'selected' : ''}`.trim()
    return (
      <tr data-key={name} class={classes} aria-current={isSelected ? 'true' : undefined}>
        <th scope="row">
          {open ? (
            <button type="button" class="open" onClick={open}>
              {first.cell(one)}
            </button>
          ) : (
            first.cell(one)
          )}
        </th>
        {others.map(({ key, head, cell, isNumber }) => (
          <td key={key} data-name={head} class={`of-${key} ${isNumber ? 'number' : ''}`.trim()}>
            {cell(one)}
          </td>
        ))}
      </tr>
    )
  }
}

// Rows are made when they come into sight, because thousands of them take seconds.
function useShown(count: number, reset: string) {
  const [shown, set] = useState({ reset, rows: ROWS })
  const end = useRef<HTMLParagraphElement>(null)
  const rows = shown.reset === reset ? shown.rows : ROWS
  const more = () => set({ reset, rows: rows + MORE })
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && more())
    if (end.current) observer.observe(end.current)
    return () => observer.disconnect()
  }, [rows, reset, count > rows])
  return [rows, more, end] as const
}
