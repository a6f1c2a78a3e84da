import type { Standing } from '../health/condition.ts'
import { type Fought, watchFights } from '../kernel/fights.ts'
import type { Part } from '../scheduler/part.ts'

/** So many repairs are remembered. */
const REMEMBERED = 100
/** So many are named in one line. */
const NAMED = 3

/** What somebody else had changed and was put right: counted, told of, and put off when another program undoes it again and again. */
export class Repairs {
  readonly #now: Standing
  readonly #log: (text: string) => void
  readonly #fights = watchFights()
  readonly #counts = new Map<string, number>()
  readonly #parts = new Map<string, Part>()

  constructor(now: Standing, log: (text: string) => void) {
    this.#now = now
    this.#log = log
  }

  /** How often something of this kind was put right. */
  count(kind: string): number {
    return this.#counts.get(kind) ?? 0
  }

  /** The keys of resources that are left as they are at this moment. */
  held(): ReadonlySet<string> {
    return this.#fights.held(performance.now())
  }

  /** Whether what the part keeps is left as it is at this moment. */
  isHeld(part: Part): boolean {
    return this.held().has(keyOf(part))
  }

  /** What is fought over, one sentence each; `isPending` says whether a resource was changed again and waits. */
  fights(isPending: (key: string) => boolean): string[] {
    return this.#fights.current(performance.now(), (key) => {
      const part = this.#parts.get(key)
      return part ? part.wakes.isHeld(part.name) : isPending(key)
    })
  }

  /** The part put right what it keeps, which is a thing of this kind: named for people. */
  ofPart(part: Part, kind: string, titles: readonly string[]): void {
    const key = keyOf(part)
    this.#parts.set(key, part)
    const pause = this.note(
      part,
      kind,
      titles.map((title) => ({ key, title })),
    )
    if (pause > 0) part.wakes.hold(part.name, pause)
  }

  /** The part put right these resources. Gives for how long, in milliseconds, the one that is left longest is left as it is now. */
  note(part: Part, kind: string, what: readonly Fought[]): number {
    if (what.length === 0) return 0
    // Another program that wants it otherwise is there again at once.
    const pause = this.#fights.note([...new Map(what.map((one) => [one.key, one])).values()], performance.now())
    if (pause > 0) part.wakes.poke('fight', pause)
    this.#counts.set(kind, this.count(kind) + what.length)
    const titles = what.slice(0, NAMED).map(({ title }) => title)
    const text = `${titles.join(', ')}${what.length > NAMED ? ` and ${what.length - NAMED} more` : ''}`
    this.#now.repairs = [...this.#now.repairs, { at: Date.now(), what: text }].slice(-REMEMBERED)
    this.#log(`agent: put right what somebody else had changed: ${text}`)
    return pause
  }
}

function keyOf({ name }: Part): string {
  return `part ${name}`
}
