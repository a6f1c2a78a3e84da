import type { Status } from './status.ts'

/** Distributes the current status to its listeners. */
export interface StatusFeed {
  /** Reports a change. A listener calls `look` for the current status when it is ready for the next status. */
  publish(look: () => Status): void
  /** Gives the status on every change, until the signal. Changes during the consumer's work count as one change. */
  changes(signal: AbortSignal): AsyncIterable<Status>
}

/** Makes a distributor without listeners. */
export function makeStatusFeed(): StatusFeed {
  const listeners = new Set<(look: () => Status) => void>()
  return {
    publish(look) {
      for (const listener of listeners) listener(look)
    },
    async *changes(signal) {
      let last: (() => Status) | undefined
      let resume: (() => void) | undefined
      const listener = (look: () => Status) => {
        last = look
        resume?.()
      }
      const end = () => resume?.()
      listeners.add(listener)
      signal.addEventListener('abort', end, { once: true })
      try {
        while (!signal.aborted) {
          if (!last)
            await new Promise<void>((resolve) => {
              resume = resolve
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
