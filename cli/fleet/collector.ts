// Asks all agents of a fleet again and again, and keeps what they answered last.

import { pause } from '../../agent/scheduler/pause.ts'
import { ROW_PEERS, type Summary } from '../../agent/state/summary.ts'
import { readSummary, summaryFromStatus } from './answer.ts'
import { type Fleet, judge, type KnownAgent } from './fleet.ts'
import type { Target, Targets } from './target.ts'

/** How often each agent is asked, in milliseconds, and how many at a time. */
const EVERY_MS = 15_000
const WIDTH = 50
/** Of these at a time, those that did not answer last: they keep their place until the deadline. */
const SILENT_WIDTH = 20
const DEADLINE_MS = 5000
/** How often the agents themselves are listed again. */
const LIST_MS = 60_000
const SHORTEST_WAIT_MS = 20

/** Times of a collector, in milliseconds. */
export interface Pace {
  readonly everyMs: number
  readonly deadlineMs: number
  readonly listMs: number
}

/** What is known of one target. */
interface Entry {
  target: Target
  summary?: Summary
  at?: number
  tookMs?: number
  failure?: { readonly why: string; readonly since: number }
  /** When it is due, by performance.now(). */
  due: number
}

/** Asks the agents until the signal of `run`. */
export class Collector {
  readonly #list: (signal: AbortSignal) => Promise<Targets>
  readonly #pace: Pace
  readonly #entries = new Map<string, Entry>()
  /** Those that wait to be asked, by whether they answered last. The first one is due first. */
  readonly #answering = new Set<Entry>()
  readonly #silent = new Set<Entry>()
  /** The names in rows. Each row has all names, and each of them is kept once. */
  #names = new Map<string, string>()
  #note: string | undefined
  #isListed = false
  #asking = 0
  #askingSilent = 0
  #fleet: { readonly fleet: Fleet; readonly changes: number } | undefined
  #changes = 0
  #wake = () => {}

  /** `list` gives the agents. It throws Error when it cannot: those that are known stay. */
  constructor(list: (signal: AbortSignal) => Promise<Targets>, pace: Partial<Pace> = {}) {
    this.#list = list
    this.#pace = { everyMs: EVERY_MS, deadlineMs: DEADLINE_MS, listMs: LIST_MS, ...pace }
  }

  /** Every agent that is known was asked once, and has answered or failed. */
  get isComplete(): boolean {
    return this.#isListed && [...this.#entries.values()].every(({ at, failure }) => at !== undefined || failure)
  }

  /** Grows with every answer. */
  get changes(): number {
    return this.#changes
  }

  /** The fleet as it is known now. It is judged again only after another answer. */
  fleet(): Fleet {
    if (this.#fleet?.changes !== this.#changes || this.#fleet === undefined) {
      const known = [...this.#entries.values()].map((one): KnownAgent => {
        const { target, summary, at, tookMs, failure } = one
        return {
          name: target.name,
          ...(target.zone !== undefined && { zone: target.zone }),
          ...(summary && { summary }),
          ...(at !== undefined && { at }),
          ...(tookMs !== undefined && { tookMs }),
          ...(failure && { failure }),
        }
      })
      this.#fleet = { fleet: judge(known, Date.now(), this.#note), changes: this.#changes }
    }
    return this.#fleet.fleet
  }

  /** Lists and asks until the signal. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#keepListing(signal), this.#keepAsking(signal)])
  }

  async #keepListing(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const { all, note } = await this.#list(signal)
        this.#note = note
        this.#take(all)
      } catch (cause) {
        this.#note = (cause as Error).message
      }
      this.#isListed = true
      this.#changed()
      this.#wake()
      await pause(this.#pace.listMs, signal)
    }
  }

  #take(all: readonly Target[]): void {
    const names = new Set(all.map(({ name }) => name))
    for (const [name, entry] of this.#entries) {
      if (names.has(name)) continue
      this.#entries.delete(name)
      this.#answering.delete(entry)
      this.#silent.delete(entry)
    }
    for (const target of all) {
      const known = this.#entries.get(target.name)
      if (known) known.target = target
      else {
        const entry = { target, due: 0 }
        this.#entries.set(target.name, entry)
        this.#answering.add(entry)
      }
    }
  }

  async #keepAsking(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      const waitMs = this.#askDue(signal)
      const ending = new AbortController()
      const timer = pause(Math.max(waitMs, SHORTEST_WAIT_MS), AbortSignal.any([signal, ending.signal]))
      await Promise.race([woken, timer])
      ending.abort()
    }
  }

  // Starts what is due, as far as there is room. Gives the time until the next is due.
  #askDue(signal: AbortSignal): number {
    const now = performance.now()
    let waitMs = this.#pace.everyMs
    for (const waiting of [this.#answering, this.#silent])
      for (const one of waiting) {
        if (one.due > now) {
          waitMs = Math.min(waitMs, one.due - now)
          break
        }
        if (this.#asking >= WIDTH || (waiting === this.#silent && this.#askingSilent >= SILENT_WIDTH)) break
        waiting.delete(one)
        void this.#ask(one, waiting === this.#silent, signal)
      }
    return waitMs
  }

  async #ask(one: Entry, isSilent: boolean, signal: AbortSignal): Promise<void> {
    this.#asking++
    if (isSilent) this.#askingSilent++
    const begun = performance.now()
    const limit = AbortSignal.timeout(this.#pace.deadlineMs)
    try {
      one.summary = this.#interned(await summaryFrom(one.target, AbortSignal.any([signal, limit])))
      one.at = Date.now()
      one.tookMs = performance.now() - begun
      delete one.failure
    } catch (cause) {
      const why = limit.aborted ? `no answer within ${this.#pace.deadlineMs / 1000} s` : (cause as Error).message
      if (!signal.aborted) one.failure = { why, since: one.failure?.since ?? Date.now() }
    } finally {
      one.due = begun + this.#pace.everyMs
      this.#asking--
      if (isSilent) this.#askingSilent--
      if (this.#entries.get(one.target.name) === one) (one.failure ? this.#silent : this.#answering).add(one)
      this.#changed()
      this.#wake()
    }
  }

  #interned(summary: Summary): Summary {
    const { row } = summary
    if (!row) return summary
    // Names of nodes that are gone stay until then.
    if (this.#names.size > 10 * ROW_PEERS) this.#names.clear()
    const name = row.name.map((one) => {
      const known = this.#names.get(one)
      if (known === undefined) this.#names.set(one, one)
      return known ?? one
    })
    return { ...summary, row: { ...row, name } }
  }

  #changed(): void {
    this.#changes++
  }
}

// An agent of a version before `/summary` tells the same in its status.
async function summaryFrom(target: Target, signal: AbortSignal): Promise<Summary> {
  if (target.problem !== undefined) throw new Error(target.problem)
  const { status, body } = await target.ask('/summary?row', signal)
  if (status === 200) return readSummary(body)
  if (status !== 404) throw refused(status, body)
  const older = await target.ask('/status', signal)
  if (older.status !== 200) throw refused(older.status, older.body)
  return summaryFromStatus(older.body, Date.now())
}

function refused(status: number, body: string): Error {
  return new Error(`it answers ${status}: ${body.trim().split('\n')[0]?.slice(0, 200) ?? ''}`)
}
