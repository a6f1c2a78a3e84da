// What the programs that look at many nodes get of one: a small JSON, whatever the number of its peers.
import { drift } from './reachability.ts'
import type { Recorder } from './recorder.ts'
import { isBad, type PeerState, type Row, rowName } from './rows.ts'
import { causeOf } from './sentence.ts'
import type { Finding, ServicesStatus, Status } from './status.ts'

/** A peer with lost probes, or one that cannot be reached. */
export interface WorstPeer extends Pick<Row, 'state' | 'zone' | 'sent' | 'lost' | 'ms' | 'since'> {
  readonly name: string
}
/** The peers of one zone. */
export interface ZoneSummary {
  readonly peers: number
  /** Those to which packets are lost, or some of them. */
  readonly bad: number
  /** The medians of the share of lost probes (0 to 1) and of the round trip in milliseconds. Absent without probes. */
  readonly lost?: number
  readonly ms?: number
}
/** The way to each peer as columns, in the same order. */
export interface RowSummary {
  readonly name: readonly string[]
  /** A letter for each peer: `STATE_LETTERS`. */
  readonly state: string
  /** The share of lost probes in percent. Null without probes. */
  readonly lost: readonly (number | null)[]
  /** The last round trip in milliseconds, with two digits. Null without an answer. */
  readonly ms: readonly (number | null)[]
}
/** A node in at most `SUMMARY_BYTES`. */
export interface Summary extends Pick<Status, 'node' | 'version' | 'started' | 'zone' | 'backend' | 'state'> {
  /** The agent's clock, in milliseconds since 1970. */
  readonly at: number
  /** The sentence that stands before all others. Absent on a node that is ready. */
  readonly cause?: string
  /** The first findings, errors first. */
  readonly findings: readonly Pick<Finding, 'code' | 'severity' | 'text' | 'commands'>[]
  /** The numbers of peers by state. A state without peers is absent. */
  readonly peers: { readonly [state in PeerState]?: number }
  /** At most 20 peers, the worst first. */
  readonly worst: readonly WorstPeer[]
  /** By zone, at most 20: those with the most bad peers first. Peers without a zone are under the empty name. */
  readonly zones: Readonly<Record<string, ZoneSummary>>
  readonly store: { readonly name: string; readonly connected: boolean; readonly error?: string }
  /** Missing and surplus kernel objects. */
  readonly drift: number
  /** Repairs in the last hour, or since the start of the agent. */
  readonly repairs: number
  /** Refused packets that the log has named in the last whole minute. Absent in the first minute. */
  readonly drops?: number
  /** The pods of this node that policies know of, and those without an object yet. Absent without NetworkPolicy. */
  readonly pods?: { readonly all: number; readonly closed: number }
  readonly policies?: number
  readonly services?: Pick<ServicesStatus, 'services' | 'endpoints'>
  /** The way to each peer. Only when asked for, and with at most `ROW_PEERS` peers. */
  readonly row?: RowSummary
}

/** The most bytes of a summary without its row. */
export const SUMMARY_BYTES = 4096
/** A node with more peers gives no row: the matrix of a fleet has at most 300 nodes. */
export const ROW_PEERS = 500
/** The letters of a row's states. */
const STATE_LETTERS = { reachable: 'r', narrow: 'n', silent: 's', away: 'a', unknown: '?', unreachable: 'u' } as const
const [WORST, ZONES, FINDINGS, COMMANDS, TEXT, SHORT] = [20, 20, 3, 3, 300, 60]
/** The worst state first. */
const ORDER: readonly PeerState[] = ['unreachable', 'silent', 'narrow', 'away', 'reachable', 'unknown']

/**
 * Makes the summary of a node from its status and the rows of its peers. `now` is in milliseconds since 1970. The cost
 * is one pass over the peers, and a sort of the bad ones.
 */
export function summaryOf(
  status: Status,
  rows: Iterable<Row>,
  past: Pick<Recorder, 'lately'>,
  { now, withRow }: { readonly now: number; readonly withRow: boolean },
): Summary {
  const { node, version, started, zone, backend, state, store, kinds, services, policy } = status
  const all = [...rows]
  const drops = past.lately('refused', 1)
  const cause = state === 'ready' ? undefined : causeOf(status)
  const { name, connected, error } = store
  const summary: Summary = {
    at: now,
    node,
    version,
    started,
    ...(zone !== undefined && { zone }),
    backend,
    state,
    ...(cause !== undefined && { cause: cut(cause) }),
    findings: status.findings.slice(0, FINDINGS).map(({ code, severity, text, commands }) => ({
      code,
      severity,
      text: cut(text),
      // A part of a command is no command.
      commands: commands.slice(0, COMMANDS).filter((one) => one.length <= TEXT),
    })),
    peers: countsOf(all),
    worst: worstOf(all),
    zones: zonesOf(all),
    store: { name, connected, ...(error !== undefined && { error: cut(error) }) },
    drift: drift(kinds),
    repairs: past.lately('repairs', 60) ?? 0,
    ...(drops !== undefined && { drops }),
    ...(policy && { pods: { all: policy.pods, closed: policy.closed } }),
    ...(policy && { policies: policy.policies + policy.clusterPolicies }),
    ...(services && { services: { services: services.services, endpoints: services.endpoints } }),
  }
  const small = fitted(summary)
  return withRow && all.length <= ROW_PEERS ? { ...small, row: rowSummary(all) } : small
}

// Names are never cut, as they are looked for. What is least urgent goes first.
function fitted(summary: Summary): Summary {
  let small = summary
  const isLarge = () => Buffer.byteLength(JSON.stringify(small)) > SUMMARY_BYTES
  for (let most = WORST; isLarge() && most > 5; most--) small = { ...small, worst: small.worst.slice(0, most - 1) }
  for (let most = ZONES; isLarge() && most > 0; most--)
    small = { ...small, zones: Object.fromEntries(Object.entries(small.zones).slice(0, most - 1)) }
  if (isLarge()) small = { ...small, findings: small.findings.map((one) => ({ ...one, commands: [] })) }
  for (let most = 5; isLarge() && most > 0; most--) small = { ...small, worst: small.worst.slice(0, most - 1) }
  for (let most = FINDINGS; isLarge() && most > 0; most--)
    small = { ...small, findings: small.findings.slice(0, most - 1) }
  // What is left is too large only by texts of control characters, which JSON escapes.
  const { cause, store } = small
  if (!isLarge()) return small
  const { error, ...rest } = store
  return {
    ...small,
    ...(cause !== undefined && { cause: cut(cause, SHORT) }),
    store: { ...rest, ...(error !== undefined && { error: cut(error, SHORT) }) },
  }
}

function cut(text: string, most = TEXT): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text
}

function countsOf(rows: readonly Row[]): Summary['peers'] {
  const counts: { [state in PeerState]?: number } = {}
  for (const { state } of rows) counts[state] = (counts[state] ?? 0) + 1
  return counts
}

function worstOf(rows: readonly Row[]): WorstPeer[] {
  const bad = rows.filter((row) => isBad(row) || (row.lost ?? 0) > 0)
  return bad
    .sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || lossOf(b) - lossOf(a) || a.n - b.n)
    .slice(0, WORST)
    .map((row) => {
      const { state, zone, sent, lost, ms, since } = row
      return {
        name: rowName(row),
        state,
        ...(zone !== undefined && { zone }),
        ...(sent !== undefined && { sent, lost: lost ?? 0 }),
        ...(ms !== undefined && { ms }),
        ...(since !== undefined && { since }),
      }
    })
}

function zonesOf(rows: readonly Row[]): Readonly<Record<string, ZoneSummary>> {
  const zones = [...Map.groupBy(rows, ({ zone = '' }) => zone)].map(([zone, peers]) => {
    const probed = peers.filter(({ sent = 0 }) => sent > 0)
    const [lost, ms] = [median(probed.map(lossOf)), median(peers.flatMap((one) => one.ms ?? []))]
    const bad = peers.filter(isBad).length
    const medians = { ...(lost !== undefined && { lost }), ...(ms !== undefined && { ms }) }
    return [zone, { peers: peers.length, bad, ...medians }] as const
  })
  // Of an object's keys that look like numbers, the order is that of the numbers: nobody may count on it.
  return Object.fromEntries(zones.sort(([, a], [, b]) => b.bad - a.bad || b.peers - a.peers).slice(0, ZONES))
}

function rowSummary(rows: readonly Row[]): RowSummary {
  return {
    name: rows.map(rowName),
    state: rows.map(({ state }) => STATE_LETTERS[state]).join(''),
    lost: rows.map((row) => ((row.sent ?? 0) > 0 ? Math.round(lossOf(row) * 100) : null)),
    ms: rows.map(({ ms }) => ms ?? null),
  }
}

function lossOf({ sent = 0, lost = 0 }: Pick<Row, 'sent' | 'lost'>): number {
  return sent > 0 ? lost / sent : 0
}

function median(values: number[]): number | undefined {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)]
}

/** Answers at most this old are given again. Milliseconds. */
const FRESH_MS = 1000

/** Gives the summary of a source, made once a second at most. */
export class Summaries {
  readonly #source: { status(): Status }
  readonly #recorder: Recorder
  #last: { readonly at: number; readonly summary: Summary } | undefined

  constructor(source: { status(): Status }, recorder: Recorder) {
    this.#source = source
    this.#recorder = recorder
  }

  /** The summary, with the row when somebody asks for it. */
  get(withRow: boolean): Summary {
    const clock = performance.now()
    if (this.#last === undefined || clock - this.#last.at >= FRESH_MS) {
      const status = this.#source.status()
      const rows = this.#recorder.record(status).values()
      this.#last = { at: clock, summary: summaryOf(status, rows, this.#recorder, { now: Date.now(), withRow: true }) }
    }
    const { row, ...summary } = this.#last.summary
    return withRow && row ? { ...summary, row } : summary
  }
}
