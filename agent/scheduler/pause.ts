/** Waits for a time in milliseconds, or until the signal. Never rejects. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
  })
}

/** Calls `act` at this interval, in milliseconds, until the signal. */
export function every(ms: number, act: () => void, signal: AbortSignal): void {
  if (signal.aborted) return
  const timer = setInterval(act, ms)
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
}

/**
 * Delays between attempts, in milliseconds. The base doubles up to `most`. Each delay is random between half the base
 * and the base, so that a thousand nodes do not return at once.
 */
export function* delays(least: number, most: number): Generator<number, never> {
  for (let ms = least; ; ms = Math.min(most, ms * 2)) yield ms * (0.5 + Math.random() / 2)
}

/** A bell that remembers one ring. A ring without a waiting caller is heard by the next caller. */
export interface Notification {
  notify(): void
  /** Resolves when the bell rings or has rung, or when the signal ends. */
  notified(signal: AbortSignal): Promise<void>
}

/** Makes a bell that has not rung. */
export function makeNotification(): Notification {
  let isNotified = false
  let resume: (() => void) | undefined
  return {
    notify() {
      isNotified = true
      resume?.()
    },
    async notified(signal) {
      if (!isNotified && !signal.aborted)
        await new Promise<void>((resolve) => {
          const done = () => {
            signal.removeEventListener('abort', done)
            resolve()
          }
          signal.addEventListener('abort', done)
          resume = done
        })
      isNotified = false
      resume = undefined
    },
  }
}
