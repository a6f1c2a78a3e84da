// Remembers what was: since when each peer is as it is, what has happened, and the values of each minute.
import { firstOf } from '../../lib/text/listing.ts'
import type { BgpSession } from '../bgp/view.ts'
import { encodeKey } from '../lease/lease.ts'
import { pause } from '../scheduler/pause.ts'
import { type Happening, Happenings, type Report } from './happenings.ts'
import { type NodePast, Past, type PeerPast } from './past.ts'
import { sentenceOf } from './phrases.ts'
import { drift, nameOf, total } from './reachability.ts'
import { isBad, type Row, rowName, rowOf, zoneWords } from './rows.ts'
import { causeOf } from './sentence.ts'
import type { Status } from './status.ts'

const MINUTE_MS = 60_000
/** Changes are recorded once a second at most, and for a thousandth of a core. */
const QUIET_MS = 1000
const SHARE = 1000
/** The peers that one entry names. */
const NAMED = 3
const LETTERS = { ready: 'r', degraded: 'd', 'not ready': 'n' } as const

/** What one status is compared with in the next. */
interface Before {
  readonly status: Pick<Status, 'state' | 'kinds' | 'store' | 'started'>
  readonly problems: ReadonlyMap<string, Report>
  readonly sessions: ReadonlyMap<string, BgpSession>
  readonly repairAt: number
}

/** The memory of one agent. It needs the statuses in their order, each at least once. */
export class Recorder {
  readonly #log = new Happenings()
  readonly #past = new Past()
  readonly #clock: () => number
  #rows = new Map<string, Row>()
  #serial = 0
  #before: Before | undefined
  #refused = 0
  #minute: { readonly at: number; readonly repaired: number; readonly refused: number } | undefined

  /** `clock` gives milliseconds since 1970. */
  constructor(clock: () => number = Date.now) {
    this.#clock = clock
  }

  /** The agent's clock, in milliseconds since 1970. */
  get now(): number {
    return this.#clock()
  }

  /** Compares a status with the one before. Returns the rows of its peers; a row that is as before is the same object. */
  record(status: Status): ReadonlyMap<string, Row> {
    const [at, before] = [this.#clock(), this.#before]
    const problems = problemsOf(status)
    this.#peers(status, at)
    if (before) {
      for (const [key, report] of problems) if (!before.problems.has(key)) this.#log.add(at, report)
      for (const [key, report] of before.problems) if (!problems.has(key)) this.#log.add(at, over(report))
    } else for (const report of problems.values()) this.#log.add(at, report)
    const { store } = status
    if (before && before.status.store.connected !== store.connected) this.#log.add(at, storeReport(store))
    if (before?.status.state !== status.state) this.#log.add(at, stateReport(status, before === undefined))
    const sessions = new Map(status.bgp?.sessions.map((one) => [`${one.kind} ${one.address}`, one]))
    for (const [key, one] of sessions) this.#session(at, before?.sessions.get(key), one)
    const fresh = status.repairs.filter((one) => one.at > (before?.repairAt ?? 0))
    for (const { at: when, what } of fresh)
      this.#log.add(when, { kind: 'repair', tone: 'info', text: what, about: /^\S+/.exec(what)?.[0] ?? '' })
    const { state, kinds, started } = status
    const repairAt = fresh.at(-1)?.at ?? before?.repairAt ?? 0
    this.#before = { status: { state, kinds, store, started }, problems, sessions, repairAt }
    this.#write(status, at)
    return this.#rows
  }

  /** Notes a refused packet, described in one line. */
  refused(text: string): void {
    this.#refused++
    const about = /→ (\S+)/.exec(text)?.[1] ?? ''
    this.#log.add(this.#clock(), { kind: 'drop', tone: 'info', text, about })
  }

  /** The log, oldest first. */
  happenings(most?: number): readonly Happening[] {
    return this.#log.newest(most)
  }

  /** What is new in the log since the last call. */
  changes(): Happening[] {
    return this.#log.changes()
  }

  /** The last day of the node. Undefined in the first minute. */
  past(): NodePast | undefined {
    return this.#past.node()
  }

  /** How often something happened in the last whole minutes. Undefined when nothing is known of them. */
  lately(name: 'repairs' | 'refused', minutes: number): number | undefined {
    return this.#past.sum(name, minutes)
  }

  /** The last hour of a peer. Undefined for a peer that was not probed. */
  pastOf(key: string): PeerPast | undefined {
    return this.#past.peer(key)
  }

  #peers({ peers }: Status, at: number): void {
    const rows = new Map<string, Row>()
    const [lost, back]: [Row[], Row[]] = [[], []]
    const isFirst = this.#before === undefined
    for (const peer of peers) {
      const key = encodeKey(peer.subnets)
      const old = this.#rows.get(key)
      const made = rowOf(old?.n ?? ++this.#serial, peer, old?.since)
      const isOther = old !== undefined && old.state !== made.state
      // The first answer of a peer is no news.
      const isNews = (isOther || (old === undefined && !isFirst)) && (isBad(made) || (old !== undefined && isBad(old)))
      const row = isOther || (old === undefined && isBad(made)) ? { ...made, since: at } : made
      rows.set(key, old && isEqual(old, row) ? old : row)
      if (isNews) (isBad(row) ? lost : back).push(row)
    }
    this.#rows = rows
    for (const report of peerReports(lost, back)) this.#log.add(at, report)
  }

  #session(at: number, before: BgpSession | undefined, now: BgpSession): void {
    const isUp = now.state === 'Established'
    if (before === undefined ? !isUp : (before.state === 'Established') === isUp) return
    const why = now.reason === undefined ? '' : `: ${now.reason}`
    const text = isUp ? `BGP to ${now.name} is established` : `BGP to ${now.name} is away (${now.state})${why}`
    this.#log.add(at, { kind: 'bgp', tone: isUp ? 'good' : 'error', text, about: now.name })
  }

  #write(status: Status, at: number): void {
    const { repaired } = total(status.kinds)
    const now = { at: Math.floor(at / MINUTE_MS), repaired, refused: this.#refused }
    const last = this.#minute
    if (last?.at === now.at) return
    this.#minute = now
    if (!last) return
    const figures = {
      lost: [...this.#rows.values()].filter(isBad).length,
      drift: drift(status.kinds),
      // After a restart of its parts, the agent counts from 0 again.
      repairs: Math.max(repaired - last.repaired, 0),
      refused: now.refused - last.refused,
    }
    this.#past.write(now.at, LETTERS[status.state], figures, this.#rows)
  }
}

/** Records the statuses of a source until the signal: each change, and each minute. Ends early when the source ends. */
export async function keepRecord(
  recorder: Recorder,
  source: { status(): Status; changes(signal: AbortSignal): AsyncIterable<Status> },
  signal: AbortSignal,
): Promise<void> {
  const minutes = setInterval(() => recorder.record(source.status()), MINUTE_MS)
  try {
    for await (const status of source.changes(signal)) {
      const started = performance.now()
      recorder.record(status)
      await pause(Math.max(QUIET_MS, SHARE * (performance.now() - started)), signal)
    }
  } finally {
    clearInterval(minutes)
  }
}

// Numbers in a sentence change while the problem is the same. Peers have entries of their own.
function problemsOf({ reasons, degraded, findings, store, peers }: Status): ReadonlyMap<string, Report> {
  const codes = new Map(findings.map((one) => [sentenceOf(one), one]))
  const bad = peers.filter((peer) => peer.problem !== undefined || /silent|narrow/.test(peer.probe?.state ?? ''))
  const names = bad.map(nameOf)
  const isTold = (text: string) =>
    (store.error !== undefined && text.includes(store.error)) || names.some((name) => text.includes(name))
  const report = (text: string, tone: Report['tone']): [string, Report][] => {
    const found = codes.get(text)
    if (!found && isTold(text)) return []
    const about = found ? { about: found.code } : {}
    const report = { kind: 'problem', tone: found?.severity ?? tone, text: found?.text ?? text, ...about } as const
    return [[text.replace(/\d+/g, '#'), report]]
  }
  return new Map([
    ...reasons.flatMap((text) => report(text, 'error')),
    ...degraded.flatMap((text) => report(text, 'warning')),
  ])
}

function over({ text, ...report }: Report): Report {
  return { ...report, tone: 'good', text: `over: ${text}` }
}

function storeReport({ name, connected, error }: Status['store']): Report {
  const text = connected ? `${name} answers again` : `${name} does not answer: ${error ?? 'it says no reason'}`
  return { kind: 'store', tone: connected ? 'good' : 'warning', text }
}

function stateReport({ node, state, reasons, degraded, findings }: Status, isFirst: boolean): Report {
  const because = causeOf({ reasons, degraded, findings })
  const cause = because === undefined || state === 'ready' ? '' : `: ${because}`
  const text = isFirst ? `the agent has started; ${node} is ${state}${cause}` : `${node} is ${state}${cause}`
  const tone = state === 'ready' ? 'good' : state === 'degraded' ? 'warning' : 'error'
  return { kind: 'state', tone, text }
}

function peerReports(lost: readonly Row[], back: readonly Row[]): Report[] {
  const reports: Report[] = []
  for (const [rows, tone] of [
    [lost, 'error'],
    [back, 'good'],
  ] as const) {
    const byText = Map.groupBy(rows, (row) => (tone === 'good' ? 'answer again' : wordsOf(row)))
    for (const [words, all] of byText) {
      const names = all.map(rowName)
      const text =
        all.length === 1 ? `${names[0]}: ${singular(words)}` : `${firstOf(names, NAMED)}: ${words}${zoneWords(all)}`
      reports.push({ kind: 'peer', tone, text, ...(all.length === 1 && { about: names[0] as string }) })
    }
  }
  return reports
}

function wordsOf({ state, problem }: Row): string {
  if (state === 'narrow') return 'packets of full size do not arrive'
  if (state === 'away') return 'do not answer, and Kubernetes has no news of them'
  return state === 'silent' ? 'do not answer' : (problem ?? 'cannot be reached')
}

function singular(words: string): string {
  return words
    .replace(/^do not answer/, 'does not answer')
    .replace(/of them$/, 'of it')
    .replace(/^answer again/, 'answers again')
}

function isEqual(one: Row, other: Row): boolean {
  const keys = Object.keys(other) as (keyof Row)[]
  return keys.every((key) => one[key] === other[key])
}
