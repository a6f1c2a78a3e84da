// This folder runs the agent's parts. Begin with `part.ts`, the interface of a part. `scheduler.ts` runs each part in a
// loop of its own. This file wakes the parts. `failures.ts` keeps their failures, and `pause.ts` has waits.
/** The wakes of one part. All wakes before the part's next step count as one. */
export interface Wakes {
  /** Wakes the part after `afterMs`. The earlier of two times for one reason counts. */
  poke(why: string, afterMs?: number): void
  /** Wakes the part at once, and ends the wait for further wakes: somebody waits for the step. */
  hurry(why: string): void
  /** Delays all wakes for this reason until so many milliseconds from now. */
  hold(why: string, forMs: number): void
  /** Whether a wake for this reason exists and is delayed. */
  isHeld(why: string): boolean
  /**
   * Waits for a wake, and then until no wake has come for `quietMs`. This second wait lasts at most twenty times
   * `quietMs`, so that a burst counts as one. Gives each reason once. Empty when the signal ended the wait.
   */
  next(quietMs: number): Promise<readonly string[]>
}

const LONGEST = 20
// A timer with more than 31 bits of milliseconds fires at once.
const LONGEST_MS = 2 ** 31 - 1

/** Makes the wakes of one part. They work until the signal. */
export function makeWakes(signal: AbortSignal): Wakes {
  const due = new Map<string, number>()
  const held = new Map<string, number>()
  let pokes = 0
  // Ends the wait for further wakes. `isUrgent` counts until the next step.
  let isUrgent = false
  let go: (() => void) | undefined
  let wake: (() => void) | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const ready = () => [...due].filter(([, at]) => at <= performance.now()).map(([why]) => why)
  function arm(): void {
    clearTimeout(timer)
    if (!wake || due.size === 0) return
    timer = setTimeout(() => wake?.(), Math.min(LONGEST_MS, Math.max(0, Math.min(...due.values()) - performance.now())))
  }
  async function quiet(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiting = setTimeout(resolve, ms)
    go = resolve
    await promise
    clearTimeout(waiting)
    go = undefined
  }
  signal.addEventListener('abort', () => wake?.(), { once: true })
  const poke: Wakes['poke'] = (why, afterMs = 0) => {
    const at = Math.max(performance.now() + afterMs, held.get(why) ?? 0)
    due.set(why, Math.min(at, due.get(why) ?? at))
    if (afterMs === 0) pokes++
    arm()
  }
  return {
    poke,
    hurry(why) {
      isUrgent = true
      poke(why)
      go?.()
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
      for (let seen = -1; quietMs > 0 && !isUrgent && seen !== pokes && performance.now() < end; await quiet(quietMs))
        seen = pokes
      isUrgent = false
      const why = ready()
      for (const one of why) due.delete(one)
      return why
    },
  }
}
