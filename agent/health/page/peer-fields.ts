import { collator, reach } from '../reachability.ts'
import { isBad, type PeerState, peerOf, type Row, rowName } from '../rows.ts'
import { AGES, type Fields } from './filter.ts'

/** The sign of a state. A state is never told by its colour alone. */
export const SIGNS: Readonly<Record<PeerState, string>> = {
  reachable: '✓',
  narrow: '▲',
  silent: '✕',
  unreachable: '✕',
  unknown: '?',
}
/** From the worst to the best. */
export const STATES: readonly PeerState[] = ['unreachable', 'silent', 'narrow', 'unknown', 'reachable']

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
    text: { kind: 'text', of: textOf },
  }
}

/** The share of lost probes, in percent. Undefined for a peer that was not probed. */
export function lossOf({ sent, lost = 0 }: Row): number | undefined {
  return sent === undefined || sent === 0 ? undefined : Math.round((lost / sent) * 100)
}

const texts = new WeakMap<Row, string>()

/** All words of a peer, in small letters. */
export function textOf(row: Row): string {
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

/** Compares for a column such as `-loss`. Without one, the worst is first: by state, then by loss, then by name. */
export function orderOf(sort: string): (a: Row, b: Row) => number {
  const isDown = sort.startsWith('-')
  const order = ORDERS[isDown ? sort.slice(1) : sort]
  if (!order) return (a, b) => ORDERS['state']?.(a, b) || (lossOf(b) ?? 0) - (lossOf(a) ?? 0) || byName(a, b)
  return (a, b) => (isDown ? order(b, a) : order(a, b)) || byName(a, b)
}

// Comparing 5,000 names takes 60 ms. So each name has a rank, until a new name comes.
const ranks = new Map<string, number>()

function byName(a: Row, b: Row): number {
  const [one, other] = [rowName(a), rowName(b)]
  return (ranks.get(one) ?? 0) - (ranks.get(other) ?? 0) || collator.compare(one, other)
}

/** Must be called with all peers before any are sorted. */
export function rank(rows: Iterable<Row>): void {
  const names = new Set([...rows].map(rowName))
  if (names.size === ranks.size && [...names].every((name) => ranks.has(name))) return
  ranks.clear()
  for (const [i, name] of [...names].sort(collator.compare).entries()) ranks.set(name, i)
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

/** The groups of peers, sorted by name, and the peers within them too. `name` of GROUPS, else all are one group. */
export function grouped(
  rows: readonly Row[],
  name: string,
): readonly { readonly name: string; readonly rows: readonly Row[] }[] {
  const sorted = rows.toSorted(byName)
  const of = GROUPS[name]
  if (!of) return [{ name: '', rows: sorted }]
  return [...Map.groupBy(sorted, of)]
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
