import type { Status } from './status.ts'

/** The status, for whoever listens. */
export interface News {
  tell(status: Status): void
  /** The status on every change, until the signal; what comes while nobody takes is folded into one. */
  changes(signal: AbortSignal): AsyncIterable<Status>
}

/** Makes it. */
export function makeNews(): News {
  const listeners = new Set<(status: Status) => void>()
  return {
    tell(status) {
      for (const listener of listeners) listener(status)
    },
    async *changes(signal) {
      let last: Status | undefined
      let wake: (() => void) | undefined
      const listener = (status: Status) => {
        last = status
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
          const status = last
          last = undefined
          if (status) yield status
        }
      } finally {
        listeners.delete(listener)
        signal.removeEventListener('abort', end)
      }
    },
  }
}
