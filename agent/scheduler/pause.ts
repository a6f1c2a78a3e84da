/** Waits, at most until the signal; never rejects. */
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

/** Waits between attempts, in milliseconds: each up to twice the last until `most`, drawn at random from its upper half so that a thousand nodes do not come back at once. */
export function* delays(least: number, most: number): Generator<number, never> {
  for (let ms = least; ; ms = Math.min(most, ms * 2)) yield ms * (0.5 + Math.random() / 2)
}

/** A bell that remembers one ring: what rings while nobody waits is heard by the next who does. */
export interface Bell {
  ring(): void
  /** Until it rings or has rung, or the signal ends. */
  heard(signal: AbortSignal): Promise<void>
}

/** A bell that has not rung. */
export function bell(): Bell {
  let rung = false
  let wake: (() => void) | undefined
  return {
    ring() {
      rung = true
      wake?.()
    },
    async heard(signal) {
      if (!rung && !signal.aborted)
        await new Promise<void>((resolve) => {
          const done = () => {
            signal.removeEventListener('abort', done)
            resolve()
          }
          signal.addEventListener('abort', done)
          wake = done
        })
      rung = false
      wake = undefined
    },
  }
}
