// The messages of `/events`, used by the agent and by the page. A stream begins with `whole`, or with the patches
// since the last one that its reader has (`Last-Event-ID`).
import type { Happening } from './happenings.ts'
import { apply, type Columns, type Row } from './rows.ts'
import type { Status } from './status.ts'

/** A status without what has messages of its own. */
export type Base = Omit<Status, 'peers' | 'repairs'>
/** Everything at one moment. `at` is the agent's clock, in milliseconds since 1970. */
export interface Whole {
  readonly at: number
  readonly status: Base
  readonly peers: Columns
  /** The newest entries of the log, oldest first. */
  readonly happenings: readonly Happening[]
}
/** What differs from the message before. A key of the status that is gone is null. */
export interface Patch {
  readonly at: number
  readonly status?: Readonly<Record<string, unknown>>
  readonly peers?: Columns
  /** The numbers of peers that are gone. */
  readonly gone?: readonly number[]
  /** Entries of the log that are new, or were counted again. */
  readonly happenings?: readonly Happening[]
}
/** What a reader of the messages knows. */
export interface ReaderState {
  readonly at: number
  readonly status: Base
  /** By number. It is another map after each message that changes a peer. */
  readonly peers: ReadonlyMap<number, Row>
  readonly happenings: readonly Happening[]
}

/** The entries that a reader keeps and gets first. The whole log is at `/log`. */
export const NEWEST = 50

/** What a reader knows after `whole`. */
export function known({ peers, ...rest }: Whole): ReaderState {
  const rows = new Map<number, Row>()
  apply(rows, peers)
  return { ...rest, peers: rows }
}

/** What a reader knows after a patch. `before` is not changed. */
export function patched(before: ReaderState, { at, status, peers, gone, happenings }: Patch): ReaderState {
  return {
    at,
    status: status ? merged(before.status, status) : before.status,
    peers: peers || gone ? peersAfter(before.peers, peers, gone) : before.peers,
    happenings: happenings ? happeningsAfter(before.happenings, happenings) : before.happenings,
  }
}

function merged(before: Base, changes: Readonly<Record<string, unknown>>): Base {
  const all = Object.entries({ ...before, ...changes }).filter(([, value]) => value !== null)
  return Object.fromEntries(all) as unknown as Base
}

function peersAfter(
  before: ReadonlyMap<number, Row>,
  columns: Columns | undefined,
  gone: readonly number[] = [],
): ReadonlyMap<number, Row> {
  const rows = new Map(before)
  for (const n of gone) rows.delete(n)
  if (columns) apply(rows, columns)
  return rows
}

function happeningsAfter(before: readonly Happening[], news: readonly Happening[]): readonly Happening[] {
  const all = new Map([...before, ...news].map((one) => [one.n, one]))
  return [...all.values()].sort((a, b) => a.n - b.n).slice(-NEWEST)
}
