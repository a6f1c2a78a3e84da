import type { ComponentChildren } from 'preact'

/** A row of a table. Its first cell names it. A bad row is red. */
export interface Row {
  readonly key: string
  readonly isBad: boolean
  readonly cells: readonly ComponentChildren[]
}

interface ListingProps {
  id: string
  title: string
  /** The name of the search for a screen reader, and what may be typed into it. */
  label: string
  placeholder: string
  search: string
  setSearch: (text: string) => void
  /** How many there are, or how many the search has found. */
  count: string
  heads: readonly string[]
  /** Whether the last cell of a row is its state. */
  hasState?: boolean
  rows: readonly Row[]
  /** What stands there without a row. */
  empty: string
  /** What follows the table. */
  children?: ComponentChildren
}

/** A card with a table that can be searched. */
export function Listing(props: ListingProps) {
  const { id, title, label, placeholder, search, setSearch, count, heads, hasState, rows, empty, children } = props
  return (
    <section class="card peers" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <label class="search">
        <span class="heard-only">{label}</span>
        <input
          type="search"
          placeholder={placeholder}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <p class="found" role="status">
        {count}
      </p>
      {rows.length > 0 ? (
        <table>
          <thead>
            <tr>
              {heads.map((head) => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ key, isBad, cells: [name, ...cells] }) => (
              <tr key={key} class={isBad ? 'bad' : ''}>
                <th scope="row">{name}</th>
                {cells.map((cell, i) => (
                  <td
                    key={heads[i + 1]}
                    data-name={heads[i + 1]}
                    class={hasState && i === cells.length - 1 ? 'state' : ''}
                  >
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="empty">{empty}</p>
      )}
      {children}
    </section>
  )
}
