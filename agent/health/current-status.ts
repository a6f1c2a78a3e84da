import type { Status } from './status.ts'

/** The status, for whoever listens. */
export interface News {
  /** Something changed: `look` gives the status as it is then, and is called only for who takes it. */
  tell(look: () => Status): void
  /** The status on every change, until the signal; what comes while nobody takes is folded into one. */
  changes(signal: AbortSignal): AsyncIterable<Status>
}

/** Makes it. */
export function makeNews(): News {
  const listeners = new Set<(look: () => Status) => void>()
  return {
    tell(look) {
      for (const listener of listeners) listener(look)
    },
    async *changes(signal) {
      let last: (() => Status) | undefined
      let wake: (() => void) | undefined
      const listener = (look: () => Status) => {
        last = look
        wake?.()
      }
      const end = () => wake?.()
      listeners.add(listener)
      signal.addEventListener('abort', end, { once: true })
      try {
        while (!signal.aborted) {
          if (!last)
            await new Promise<void>((resolve) => {
              wake = resolve
            })
          const look = last
          last = undefined
          if (look) yield look()
        }
      } finally {
        listeners.delete(listener)
        signal.removeEventListener('abort', end)
      }
    },
  }
}
