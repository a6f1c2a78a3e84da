// setTimeout fires at once for a delay of more than 2^31 ms. Longer waits use several timers.
const LONGEST_NAP_MS = 3_600_000

/** Waits until a time, in milliseconds since 1970. It may be far in the future. Rejects when the signal aborts. */
export async function sleep(until: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  while (Date.now() < until) {
    const { promise, resolve } = Promise.withResolvers<void>()
    const done = () => resolve()
    const timer = setTimeout(done, Math.min(until - Date.now(), LONGEST_NAP_MS))
    signal.addEventListener('abort', done)
    await promise
    clearTimeout(timer)
    signal.removeEventListener('abort', done)
    signal.throwIfAborted()
  }
}
