// The peers of a node as its page gets them: a row each, sent as columns. Used by the agent and by the page.
import type { Probe } from '../backend/probes.ts'
import type { Peer } from './status.ts'

/**
 * What is known of the way to a peer. `unknown`: not asked yet. `unreachable`: it is not programmed. `away`: it is silent,
 * and Kubernetes has no news of the node, so the fault is there.
 */
export type PeerState = 'reachable' | 'narrow' | 'silent' | 'away' | 'unknown' | 'unreachable'

/** A peer in one row of plain values. A field without a value is absent. */
export interface Row {
  /** The number of the peer while the agent runs and somebody looks. */
  readonly n: number
  readonly node?: string
  readonly v4?: string
  readonly v6?: string
  readonly ip4?: string
  readonly ip6?: string
  readonly backend: string
  readonly version?: string
  readonly zone?: string
  readonly problem?: string
  readonly state: PeerState
  readonly sent?: number
  readonly lost?: number
  /** The last round trip in milliseconds, with two digits. */
  readonly ms?: number
  /** The age of the last handshake of WireGuard, in minutes. */
  readonly age?: number
  /** Since when the state is as it is, in milliseconds since 1970. Absent when it was so at the start of the agent. */
  readonly since?: number
}
type Field = keyof Row
type Value = string | number | null

/**
 * Some fields of some rows: a list of values per field, in the order of `n`. `null` stands for an absent value. What a
 * row does not have here stays as it is.
 */
export type Columns = { readonly n: readonly number[] } & { readonly [field in Field]?: readonly Value[] }

const FIELDS: readonly Exclude<Field, 'n'>[] = [
  'node',
  'v4',
  'v6',
  'ip4',
  'ip6',
  'backend',
  'version',
  'zone',
  'problem',
  'state',
  'sent',
  'lost',
  'ms',
  'age',
  'since',
]

/** The state of a peer in one word. A peer that is programmed and not probed is `unknown`. */
export function stateOf({ problem, probe, isAway }: Pick<Peer, 'problem' | 'probe' | 'isAway'>): PeerState {
  if (problem !== undefined) return 'unreachable'
  if (probe === undefined) return 'unknown'
  if (probe.state === 'silent' && isAway) return 'away'
  return probe.state === 'answers' ? 'reachable' : probe.state
}

/** Makes the row of a peer. */
export function rowOf(n: number, peer: Peer, since: number | undefined): Row {
  const { node, version, zone, subnets, ips, backend, problem, probe, handshakeAge } = peer
  const row = {
    n,
    node,
    v4: subnets.v4,
    v6: subnets.v6,
    ip4: ips.v4,
    ip6: ips.v6,
    backend,
    version,
    zone,
    problem,
    state: stateOf(peer),
    sent: probe?.sent,
    lost: probe?.lost,
    ms: probe?.ms === undefined ? undefined : Number(probe.ms.toPrecision(2)),
    age: handshakeAge === undefined ? undefined : Math.floor(handshakeAge / 60),
    since,
  }
  return row as Row
}

/** The peer of a row, for the words that describe it. */
export function peerOf(row: Row): Peer {
  const { node, version, zone, v4, v6, ip4, ip6, backend, problem, state, sent, lost = 0, ms, age } = row
  const probed = {
    reachable: 'answers',
    narrow: 'narrow',
    silent: 'silent',
    away: 'silent',
    unknown: 'unknown',
  } as const
  const probe: Probe | undefined =
    state === 'unreachable' || sent === undefined
      ? undefined
      : { state: probed[state], sent, lost, ...(ms !== undefined && { ms }) }
  return {
    ...(node !== undefined && { node }),
    ...(version !== undefined && { version }),
    ...(zone !== undefined && { zone }),
    subnets: both(v4, v6),
    ips: both(ip4, ip6),
    backend,
    ...(problem !== undefined && { problem }),
    ...(state === 'away' && { isAway: true }),
    ...(probe && { probe }),
    ...(age !== undefined && { handshakeAge: age * 60 }),
  } as Peer
}

function both(v4: string | undefined, v6: string | undefined): { v4?: string; v6?: string } {
  return { ...(v4 !== undefined && { v4 }), ...(v6 !== undefined && { v6 }) }
}

/** Whether packets to the peer of this row are lost, or some of them. */
export function isBad(row: Pick<Row, 'state'>): boolean {
  return row.state !== 'reachable' && row.state !== 'unknown'
}

/** All rows as columns. */
export function columnsOf(rows: readonly Row[]): Columns {
  return columns(rows, FIELDS)
}

/** The fields that differ from the row of the same peer before, as columns. Undefined when none does. */
export function changed(rows: readonly Row[], before: (n: number) => Row | undefined): Columns | undefined {
  const others: Row[] = []
  const fields = new Set<Exclude<Field, 'n'>>()
  for (const row of rows) {
    const old = before(row.n)
    if (old === row) continue
    let isOther = false
    for (const field of FIELDS) {
      if (old?.[field] === row[field]) continue
      isOther = true
      fields.add(field)
    }
    if (isOther) others.push(row)
  }
  if (others.length === 0) return undefined
  return columns(
    others,
    FIELDS.filter((field) => fields.has(field)),
  )
}

/** Sets the values of columns in `rows`, which is changed. Rows that are not there yet are made. */
export function apply(rows: Map<number, Row>, { n: numbers, ...fields }: Columns): void {
  const lists = Object.entries(fields) as [Field, readonly Value[]][]
  for (const [i, n] of numbers.entries()) {
    const row: Record<string, unknown> = { ...rows.get(n), n }
    for (const [field, values] of lists) {
      const value = values[i] ?? null
      if (value === null) delete row[field]
      else row[field] = value
    }
    rows.set(n, row as unknown as Row)
  }
}

function columns(rows: readonly Row[], fields: readonly Exclude<Field, 'n'>[]): Columns {
  const used = fields.map((field) => [field, rows.map((row) => row[field] ?? null)] as const)
  return { n: rows.map(({ n }) => n), ...Object.fromEntries(used) }
}

/** `, all in zone b` when all of several rows are in one zone. Else nothing. */
export function zoneWords(rows: readonly Pick<Row, 'zone'>[]): string {
  const zone = rows[0]?.zone
  const isOne = zone !== undefined && rows.length > 1 && rows.every((row) => row.zone === zone)
  return isOne ? `, ${rows.length === 2 ? 'both' : 'all'} in zone ${zone}` : ''
}

/** The name of a row's peer. */
export function rowName({ node, ip4, ip6, v4, v6 }: Row): string {
  return node ?? ip4 ?? ip6 ?? v4 ?? v6 ?? 'a node without a name'
}
