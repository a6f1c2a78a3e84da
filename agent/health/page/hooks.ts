import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { drift, total } from '../reachability.ts'
import type { Status } from '../status.ts'
import { add, begin, type History } from './history.ts'
import { follow } from './live.ts'

/**
 * The data that the page shows. `aheadMs` is the lead of the agent's clock over the browser's clock, in milliseconds.
 */
export interface Seen {
  readonly status: Status | undefined
  readonly connected: boolean
  /** The time of the connection loss, by the browser's clock. Undefined while the page is connected. */
  readonly lost: number | undefined
  readonly aheadMs: number
  readonly history: History
}

/** Follows the agent's events at `url` and gives the current data. */
export function useAgent(url: string): Seen {
  const [seen, set] = useState<Seen>(() => ({
    status: undefined,
    connected: false,
    lost: undefined,
    aheadMs: 0,
    history: begin(Date.now()),
  }))
  useEffect(() => {
    const status = (now: Status, aheadMs: number) =>
      set((before) => {
        // Loads the page again after an update of the agent, which may send data that this page does not know.
        if (before.status && before.status.version !== now.version) location.reload()
        return { ...before, status: now, aheadMs, history: extended(before, now) }
      })
    const connected = (now: boolean) =>
      set((before) => {
        const isSame = before.connected === now && (before.lost === undefined) === now
        return isSame ? before : { ...before, connected: now, lost: now ? undefined : (before.lost ?? Date.now()) }
      })
    return follow(url, { status, connected })
  }, [url])
  return seen
}

// After a restart, the agent counts repairs from 0 again.
function extended({ status: before, history }: Seen, status: Status): History {
  const { repaired } = total(status.kinds)
  const isSameRun = before?.started === status.started
  const counted = before === undefined ? repaired : isSameRun ? total(before.kinds).repaired : 0
  return add(history, Date.now(), { drift: drift(status.kinds), repairs: Math.max(repaired - counted, 0) })
}

/** Gives the browser's clock in milliseconds since 1970, updated once a second. */
export function useNow(): number {
  const [now, set] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}

/** Gives the current width of an element in pixels. The width is 0 before the first measurement. */
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
