import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { drift, total } from '../reachability.ts'
import type { Status } from '../status.ts'
import { add, begin, type History } from './history.ts'
import { follow } from './live.ts'

/** All that the page shows. */
export interface Seen {
  readonly status: Status | undefined
  readonly connected: boolean
  /** When the connection was lost, by the browser's clock; undefined while it stands. */
  readonly lost: number | undefined
  readonly aheadMs: number
  readonly history: History
}

/** What the agent tells, as it comes. */
export function useAgent(url: string): Seen {
  const [seen, set] = useState<Seen>(() => ({ status: undefined, connected: false, lost: undefined, aheadMs: 0, history: begin(Date.now()) }))
  useEffect(
    () =>
      follow(url, {
        status: (status, aheadMs) =>
          set((before) => {
            // Another version may say more than this page knows to show.
            if (before.status && before.status.version !== status.version) location.reload()
            return { ...before, status, aheadMs, history: extended(before, status) }
          }),
        connected: (connected) => set((before) => (before.connected === connected && (before.lost !== undefined) === !connected ? before : { ...before, connected, lost: connected ? undefined : (before.lost ?? Date.now()) })),
      }),
    [url],
  )
  return seen
}

// An agent that was started again counts from 0.
function extended({ status: before, history }: Seen, status: Status): History {
  const repaired = total(status.kinds).repaired
  const counted = before === undefined ? repaired : before.started === status.started ? total(before.kinds).repaired : 0
  return add(history, Date.now(), { drift: drift(status.kinds), repairs: Math.max(repaired - counted, 0) })
}

/** The browser's clock in milliseconds since 1970, once a second. */
export function useNow(): number {
  const [now, set] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}

/** The width of an element in pixels, as it changes; 0 before it is known. */
export function useWidth<E extends Element>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null)
  const [width, set] = useState(0)
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.round(entry?.contentRect.width ?? 0)))
    if (ref.current) observer.observe(ref.current)
    return () => observer.disconnect()
  }, [])
  return [ref, width]
}
