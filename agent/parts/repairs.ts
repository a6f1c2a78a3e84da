import { firstOf } from '../../lib/text/listing.ts'
import { type Fought, watchFights } from '../kernel/fights.ts'
import type { Part } from '../scheduler/part.ts'
import { isTraced, noteSpan } from '../scheduler/spans.ts'
import type { NodeState } from '../state/condition.ts'

/** The number of repairs that the status keeps. */
const REMEMBERED = 100
/** The number of repairs that one log line names. */
const NAMED = 3

/**
 * The repairs after changes by other programs. It counts and logs them. It delays the repair of an object that another
 * program changes again and again.
 */
export class Repairs {
  readonly #now: NodeState
  readonly #log: (text: string) => void
  readonly #fights = watchFights()
  readonly #counts = new Map<string, number>()
  readonly #parts = new Map<string, Part>()

  constructor(now: NodeState, log: (text: string) => void) {
    this.#now = now
    this.#log = log
  }

  /** The number of repairs of this kind. */
  count(kind: string): number {
    return this.#counts.get(kind) ?? 0
  }

  /** The keys of resources that are left unchanged at this moment. */
  held(): ReadonlySet<string> {
    return this.#fights.held(performance.now())
  }

  /** Whether the object of this part is left unchanged at this moment. */
  isHeld(part: Part): boolean {
    return this.held().has(keyOf(part))
  }

  /** The current fights, one sentence each. `isPending` says whether a resource was changed again and waits. */
  fights(isPending: (key: string) => boolean): string[] {
    return this.#fights.current(performance.now(), (key) => this.#waits(key, isPending))
  }

  /** The number of the current fights. */
  fightCount(isPending: (key: string) => boolean): number {
    return this.#fights.count(performance.now(), (key) => this.#waits(key, isPending))
  }

  #waits(key: string, isPending: (key: string) => boolean): boolean {
    const part = this.#parts.get(key)
    return part ? part.queue.isDelayed(part.name) : isPending(key)
  }

  /** Notes that the part repaired its object, which is of this kind. `titles` name the object for people. */
  ofPart(part: Part, kind: string, titles: readonly string[]): void {
    const key = keyOf(part)
    this.#parts.set(key, part)
    const pause = this.note(
      part,
      kind,
      titles.map((title) => ({ key, title })),
    )
    if (pause > 0) part.queue.delay(part.name, pause)
  }

  /** Notes that the part repaired these resources. Gives the longest pause that starts now, in milliseconds. */
  note(part: Part, kind: string, what: readonly Fought[]): number {
    if (what.length === 0) return 0
    // Another program that wants another state changes the object again at once.
    const pause = this.#fights.note([...new Map(what.map((one) => [one.key, one])).values()], performance.now())
    if (pause > 0) part.queue.add('fight', pause)
    const repaired = this.count(kind) + what.length
    this.#counts.set(kind, repaired)
    // Several parts repair objects of one kind, and one of them may tell how many there are.
    const known = this.#now.kinds[kind] ?? { wanted: 0, programmed: 0 }
    this.#now.kinds = { ...this.#now.kinds, [kind]: { ...known, repaired } }
    const titles = what.map(({ title }) => title)
    const text = firstOf(titles, NAMED)
    this.#now.repairs = [...this.#now.repairs, { at: Date.now(), what: text, part: part.name }].slice(-REMEMBERED)
    if (isTraced()) for (const { title } of what) noteSpan('repair', { 'plumb.kind': kind, 'plumb.object': title })
    this.#log(`agent: repaired changes of another program: ${text}`)
    return pause
  }
}

function keyOf({ name }: Part): string {
  return `part ${name}`
}
