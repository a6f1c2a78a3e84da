/** What the page shows, as its address says it. */
export interface PageAddress {
  /** The key of the view. */
  readonly view: string
  /** The one that is open, such as a peer by its name or the key of its lease. */
  readonly item?: string
  /** The words of the search. */
  readonly q: string
  /** The column to sort by, with `-` before it for the other way round. Empty: the worst first. */
  readonly sort: string
  /** How peers are grouped. Empty: by zone if they have zones. */
  readonly group: string
  /** The row that the keys are at. */
  readonly selected: string
  /** The time that the log is shown at, such as `12:03`. Empty: now. */
  readonly at: string
  /** The page shows a moment and does not go on. */
  readonly isPaused: boolean
}
/** The page without anything in its address. */
export const HOME: PageAddress = { view: 'overview', q: '', sort: '', group: '', selected: '', at: '', isPaused: false }

/** Reads the part of an address after `#`. What it does not know is as in HOME. `views` are the keys of the page. */
export function placeOf(hash: string, views: readonly string[]): PageAddress {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split(/\?(.*)/s)
  const [name = '', item = ''] = path.split(/\/(.*)/s)
  const view = views.find((one) => one === name) ?? HOME.view
  const values = new URLSearchParams(query)
  const text = (key: string) => values.get(key) ?? ''
  return {
    view,
    ...(item !== '' && view === name && { item: decoded(item) }),
    q: text('q'),
    sort: text('sort'),
    group: text('group'),
    selected: text('sel'),
    at: text('at'),
    isPaused: values.has('paused'),
  }
}

/** Writes it, with what differs from HOME only. */
export function hashOf({ view, item, q, sort, group, selected, at, isPaused }: PageAddress): string {
  const values = Object.entries({ q, sort, group, sel: selected, at }).filter(([, value]) => value !== '')
  const query = [
    ...values.map(
      ([key, value]) => `${key}=${encodeURIComponent(value).replaceAll('%20', '+').replaceAll('%3A', ':')}`,
    ),
    ...(isPaused ? ['paused'] : []),
  ].join('&')
  const path = view === HOME.view ? '' : view
  return `#/${path}${item === undefined ? '' : `/${encodeURIComponent(item)}`}${query === '' ? '' : `?${query}`}`
}

// A hand-written address may have a `%` of its own.
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
