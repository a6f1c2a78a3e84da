import { collator, reach } from '../state/reachability.ts'
import { isBad, type PeerState, peerOf, type Row, rowName } from '../state/rows.ts'
import { AGES, type Fields } from './filter.ts'

/** The sign of a state. A state is never told by its colour alone. */
export const SIGNS: Readonly<Record<PeerState, string>> = {
  reachable: '✓',
  narrow: '▲',
  silent: '✕',
  unreachable: '✕',
  away: '–',
  unknown: '?',
}
/** From the worst to the best. */
export const STATES: readonly PeerState[] = ['unreachable', 'silent', 'narrow', 'away', 'unknown', 'reachable']

/** The keys of a search for peers. `now` gives the agent's clock, in milliseconds since 1970. */
export function peerFields(now: () => number): Fields<Row> {
  return {
    node: { kind: 'text', of: rowName },
    state: { kind: 'exact', of: (row) => (isBad(row) ? [row.state, 'bad'] : row.state) },
    zone: { kind: 'exact', of: ({ zone }) => zone },
    version: { kind: 'exact', of: ({ version }) => version },
    backend: { kind: 'exact', of: ({ backend }) => backend },
    ip: { kind: 'text', of: ({ v4, v6, ip4, ip6 }) => [v4, v6, ip4, ip6].filter((one) => one !== undefined) },
    loss: { kind: 'number', units: { '': 1, '%': 1 }, of: lossOf },
    rtt: { kind: 'number', units: { '': 1, ms: 1, µs: 0.001, us: 0.001, s: 1000 }, of: ({ ms }) => ms },
    since: {
      kind: 'number',
      units: AGES,
      of: ({ since }) => (since === undefined ? undefined : (now() - since) / 1000),
    },
    text: { kind: 'text', of: fieldText },
  }
}

/** The share of lost probes, in percent. Undefined for a peer that was not probed. */
export function lossOf({ sent, lost = 0 }: Row): number | undefined {
  return sent === undefined || sent === 0 ? undefined : Math.round((lost / sent) * 100)
}

const texts = new WeakMap<Row, string>()

/** All words of a peer, in small letters. */
export function fieldText(row: Row): string {
  const known = texts.get(row)
  if (known !== undefined) return known
  const { node, v4, v6, ip4, ip6, backend, zone, version } = row
  const text = [node, v4, v6, ip4, ip6, backend, zone, version, reach(peerOf(row))].join(' ').toLowerCase()
  texts.set(row, text)
  return text
}

/** The columns that peers can be sorted by: negative when the first stands before the second. */
export const ORDERS: Readonly<Record<string, (a: Row, b: Row) => number>> = {
  node: byName,
  state: (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state),
  zone: (a, b) => collator.compare(a.zone ?? '', b.zone ?? ''),
  version: (a, b) => collator.compare(a.version ?? '', b.version ?? ''),
  loss: (a, b) => (lossOf(a) ?? -1) - (lossOf(b) ?? -1),
  rtt: (a, b) => (a.ms ?? -1) - (b.ms ?? -1),
  since: (a, b) => (a.since ?? 0) - (b.since ?? 0),
}

/**
 * Compares for a column such as `-loss`. Without one, the worst is first: by state, then by loss. Equal peers keep their
 * order, which is that of their names.
 */
export function orderOf(sort: string): (a: Row, b: Row) => number {
  const isDown = sort.startsWith('-')
  const order = ORDERS[isDown ? sort.slice(1) : sort]
  if (order) return isDown ? (a, b) => order(b, a) : order
  const rankOf = (row: Row) => RANKS[row.state] - (lossOf(row) ?? 0) / 1000
  return (a, b) => rankOf(a) - rankOf(b)
}

const RANKS = Object.fromEntries(STATES.map((state, i) => [state, i])) as Readonly<Record<PeerState, number>>

// Comparing 5,000 names takes 60 ms. So each name keeps its place, until there is another name.
const places = new Map<string, number>()

function byName(a: Row, b: Row): number {
  return (places.get(rowName(a)) ?? 0) - (places.get(rowName(b)) ?? 0)
}

/** The peers in the order of their names. */
export function named(rows: Iterable<Row>): Row[] {
  const all = [...rows]
  const isKnown = all.length === places.size && all.every((row) => places.has(rowName(row)))
  if (!isKnown) {
    places.clear()
    const names = [...new Set(all.map(rowName))].sort(collator.compare)
    for (const [i, name] of names.entries()) places.set(name, i)
  }
  if (places.size < all.length) return all.sort(byName)
  // Each name is another one, so each peer has a place of its own.
  const sorted: Row[] = []
  for (const row of all) sorted[places.get(rowName(row)) ?? 0] = row
  return sorted
}

/** How peers can be grouped. */
export const GROUPS: Readonly<Record<string, (row: Row) => string>> = {
  zone: ({ zone }) => (zone === undefined ? 'no zone' : `zone ${zone}`),
  network: ({ ip4, ip6 }) =>
    ip4 === undefined
      ? `${ip6 ?? 'no address'}`.replace(/^(([^:]*:){3}).*/, '$1:/48')
      : ip4.replace(/^(\d+\.\d+)\..*/, '$1.0.0/16'),
  version: ({ version }) => (version === undefined ? 'no version' : `plumb ${version}`),
  backend: ({ backend }) => backend,
  state: ({ state }) => state,
}

/** The groups of peers, sorted by name. `name` of GROUPS, else all are one group. Within a group the order stays. */
export function grouped(
  rows: readonly Row[],
  name: string,
): readonly { readonly name: string; readonly rows: readonly Row[] }[] {
  const of = GROUPS[name]
  if (!of) return [{ name: '', rows }]
  return [...Map.groupBy(rows, of)]
    .map(([key, all]) => ({ name: key, rows: all }))
    .sort((a, b) => collator.compare(a.name, b.name))
}

/** The name of the grouping when the address names none: by zone when peers have zones. */
export function usualGroup(rows: readonly Row[]): string {
  return rows.some(({ zone }) => zone !== undefined) ? 'zone' : ''
}

/** A round trip in µs or ms with two digits. Empty without one. */
export function roundTrip(ms: number | null | undefined): string {
  if (ms === undefined || ms === null) return ''
  if (ms < 1) return `${Number((ms * 1000).toPrecision(2))} µs`
  return `${Number(ms.toPrecision(2))} ms`
}
