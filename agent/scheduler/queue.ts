// This folder runs the agent's parts. Begin with `part.ts`, the interface of a part. `scheduler.ts` runs each part in a
// loop of its own. This file has the queues that trigger the loops. `failures.ts` keeps the failures of the parts, and
// `pause.ts` has waits.
/** The triggers of one part, each with its reason. All that come before the part's next step count as one. */
export interface Queue {
  /** Triggers the part after `afterMs`. The earlier of two times for one reason counts. */
  add(why: string, afterMs?: number): void
  /** Triggers the part at once, and ends the wait for further triggers: somebody waits for the step. */
  addUrgent(why: string): void
  /** Delays all triggers for this reason until so many milliseconds from now. */
  delay(why: string, forMs: number): void
  /** Whether a trigger for this reason exists and is delayed. */
  isDelayed(why: string): boolean
  /**
   * Waits for a trigger, and then until none has come for `quietMs`. This second wait lasts at most twenty times
   * `quietMs`, so that a burst counts as one. Gives each reason once. Empty when the signal ended the wait.
   */
  next(quietMs: number): Promise<readonly string[]>
}

const LONGEST = 20
// A timer with more than 31 bits of milliseconds fires at once.
const LONGEST_MS = 2 ** 31 - 1

/** Makes the queue of one part. It works until the signal. */
export function makeQueue(signal: AbortSignal): Queue {
  const due = new Map<string, number>()
  const held = new Map<string, number>()
  let adds = 0
  // Ends the wait for further triggers. `isUrgent` counts until the next step.
  let isUrgent = false
  let go: (() => void) | undefined
  let resume: (() => void) | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const ready = () => [...due].filter(([, at]) => at <= performance.now()).map(([why]) => why)
  function arm(): void {
    clearTimeout(timer)
    if (!resume || due.size === 0) return
    timer = setTimeout(
      () => resume?.(),
      Math.min(LONGEST_MS, Math.max(0, Math.min(...due.values()) - performance.now())),
    )
  }
  async function quiet(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiting = setTimeout(resolve, ms)
    go = resolve
    await promise
    clearTimeout(waiting)
    go = undefined
  }
  signal.addEventListener('abort', () => resume?.(), { once: true })
  const add: Queue['add'] = (why, afterMs = 0) => {
    const at = Math.max(performance.now() + afterMs, held.get(why) ?? 0)
    due.set(why, Math.min(at, due.get(why) ?? at))
    if (afterMs === 0) adds++
    arm()
  }
  return {
    add,
    addUrgent(why) {
      isUrgent = true
      add(why)
      go?.()
    },
    delay(why, forMs) {
      held.set(why, performance.now() + forMs)
    },
    isDelayed: (why) => due.has(why) && (held.get(why) ?? 0) > performance.now(),
    async next(quietMs) {
      while (!signal.aborted && ready().length === 0)
        await new Promise<void>((resolve) => {
          resume = resolve
          arm()
        })
      clearTimeout(timer)
      resume = undefined
      if (signal.aborted) return []
      const end = performance.now() + LONGEST * quietMs
      for (let seen = -1; quietMs > 0 && !isUrgent && seen !== adds && performance.now() < end; await quiet(quietMs))
        seen = adds
      isUrgent = false
      const why = ready()
      for (const one of why) due.delete(one)
      return why
    },
  }
}
