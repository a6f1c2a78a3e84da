import type { Status } from './status.ts'

/** Distributes the current status to its listeners. */
export interface News {
  /** Reports a change. A listener calls `look` for the current status when it is ready for the next status. */
  tell(look: () => Status): void
  /** Gives the status on every change, until the signal. Changes during the consumer's work count as one change. */
  changes(signal: AbortSignal): AsyncIterable<Status>
}

/** Makes a distributor without listeners. */
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
