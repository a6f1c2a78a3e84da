// How the agent works: parts (`part.ts`), each in a loop of its own (`scheduler.ts`), woken by what happens (here); what fails in them (`failures.ts`), and waits (`pause.ts`).
/** Wakes of one part: any number that come before it looks are one. */
export interface Wakes {
  /** Wakes the part; `afterMs` later, the earlier of two counts. */
  poke(why: string, afterMs?: number): void
  /** Lets no wake for this reason come sooner than so many milliseconds from now. */
  hold(why: string, forMs: number): void
  /** Whether a wake for this reason is there, and kept back. */
  isHeld(why: string): boolean
  /** Waits for a wake, then until none has come for `quietMs`, at most twenty times as long: a burst is one. Gives what they said, each once. Empty when the signal ended it. */
  next(quietMs: number): Promise<readonly string[]>
}

const LONGEST = 20
// A timer of more than 31 bits of milliseconds would fire at once.
const LONGEST_MS = 2 ** 31 - 1

/** Makes them, for as long as the signal lasts. */
export function makeWakes(signal: AbortSignal): Wakes {
  const due = new Map<string, number>()
  const held = new Map<string, number>()
  let pokes = 0
  let wake: (() => void) | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const ready = () => [...due].filter(([, at]) => at <= performance.now()).map(([why]) => why)
  function arm(): void {
    clearTimeout(timer)
    if (!wake || due.size === 0) return
    timer = setTimeout(() => wake?.(), Math.min(LONGEST_MS, Math.max(0, Math.min(...due.values()) - performance.now())))
  }
  signal.addEventListener('abort', () => wake?.(), { once: true })
  return {
    poke(why, afterMs = 0) {
      const at = Math.max(performance.now() + afterMs, held.get(why) ?? 0)
      due.set(why, Math.min(at, due.get(why) ?? at))
      if (afterMs === 0) pokes++
      arm()
    },
    hold(why, forMs) {
      held.set(why, performance.now() + forMs)
    },
    isHeld: (why) => due.has(why) && (held.get(why) ?? 0) > performance.now(),
    async next(quietMs) {
      while (!signal.aborted && ready().length === 0)
        await new Promise<void>((resolve) => {
          wake = resolve
          arm()
        })
      clearTimeout(timer)
      wake = undefined
      if (signal.aborted) return []
      const end = performance.now() + LONGEST * quietMs
      for (let seen = -1; quietMs > 0 && seen !== pokes && performance.now() < end; await Bun.sleep(quietMs)) seen = pokes
      const why = ready()
      for (const one of why) due.delete(one)
      return why
    },
  }
}
