// What has happened on a node, for people: one log of at most MOST entries in memory, lost at a restart of the agent.
import type { Severity } from './status.ts'

/** What an entry of the log is about. */
export type HappeningKind = 'state' | 'problem' | 'peer' | 'store' | 'repair' | 'bgp' | 'drop'
/** One entry of the log. */
export interface Happening {
  /** Grows by 1. An entry that is counted again keeps its number. */
  readonly n: number
  /** Milliseconds since 1970. */
  readonly at: number
  readonly kind: HappeningKind
  /** `good`: something is over. `info`: it needs nobody. */
  readonly tone: Severity | 'good' | 'info'
  readonly text: string
  /** The peer, the check or the kind of object it is about. */
  readonly about?: string
  /** How often it happened, and when last. Absent for once. */
  readonly count?: number
  readonly until?: number
}
/** An entry as it is reported. */
export type Report = Pick<Happening, 'kind' | 'tone' | 'text' | 'about'>

const MOST = 2000
/** Repairs and drops of one kind within this time of each other are one entry. Milliseconds. */
const STORM_MS = 60_000
const COUNTED: ReadonlySet<HappeningKind> = new Set(['repair', 'drop'])

/** The log of a node. */
export class Happenings {
  #all: Happening[] = []
  #last = 0
  /** The number of the newest entry that was counted again, by what it is about. */
  #storms = new Map<string, number>()
  /** The entries that are new or were counted again since `taken`. */
  #changes = new Set<number>()

  /** Adds an entry at `at` (milliseconds since 1970). Many repairs of one kind of object in a minute become one. */
  add(at: number, report: Report): void {
    const storm = stormOf(report)
    const before = storm === undefined ? undefined : this.#entry(this.#storms.get(storm))
    if (before && at - (before.until ?? before.at) < STORM_MS) {
      const { count = 1, ...rest } = before
      this.#put({ ...rest, text: report.text, count: count + 1, until: at })
      return
    }
    const entry = { n: ++this.#last, at, ...report }
    if (storm !== undefined) this.#storms.set(storm, entry.n)
    this.#all.push(entry)
    if (this.#all.length > MOST) this.#forget(this.#all.shift())
    this.#changes.add(entry.n)
  }

  /** The newest entries, oldest first. `most` is their number. */
  newest(most = MOST): readonly Happening[] {
    return this.#all.slice(-most)
  }

  /** What is new, or was counted again, since the last call. */
  changes(): Happening[] {
    const all = [...this.#changes].flatMap((n) => this.#entry(n) ?? [])
    this.#changes.clear()
    return all
  }

  #forget(entry: Happening | undefined): void {
    if (!entry) return
    this.#changes.delete(entry.n)
    const storm = stormOf(entry)
    if (storm !== undefined && this.#storms.get(storm) === entry.n) this.#storms.delete(storm)
  }

  #put(entry: Happening): void {
    const first = this.#all[0]?.n ?? 0
    this.#all[entry.n - first] = entry
    this.#changes.add(entry.n)
  }

  #entry(n: number | undefined): Happening | undefined {
    const first = this.#all[0]?.n
    return n === undefined || first === undefined || n < first ? undefined : this.#all[n - first]
  }
}

function stormOf({ kind, about = '' }: Pick<Report, 'kind' | 'about'>): string | undefined {
  return COUNTED.has(kind) ? `${kind} ${about}` : undefined
}
