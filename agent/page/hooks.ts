import type { RefObject } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { ReaderState } from '../state/messages.ts'
import { hashOf, type PageAddress, placeOf } from './address.ts'
import { follow } from './live.ts'

/**
 * The data that the page shows. `aheadMs` is the lead of the agent's clock over the browser's clock, in milliseconds.
 */
export interface PageData {
  readonly known: ReaderState | undefined
  /** Messages come at once. Else the agent is asked every few seconds, or the connection is lost. */
  readonly isLive: boolean
  /** The time of the connection loss, by the browser's clock. Undefined while the page is connected. */
  readonly lost: number | undefined
  readonly aheadMs: number
}

/** Follows the agent's messages at `url` and gives the current data. While paused, it gives the data of then. */
export function useAgent(url: string, isPaused: boolean): PageData {
  const [seen, set] = useState<PageData>(() => ({ known: undefined, isLive: false, lost: undefined, aheadMs: 0 }))
  const [frozen, freeze] = useState<ReaderState>()
  useEffect(() => {
    const known = (now: ReaderState, aheadMs: number) =>
      set((before) => {
        // Loads the page again after an update of the agent, which may send data that this page does not know.
        if (before.known && before.known.status.version !== now.status.version) location.reload()
        return { ...before, known: now, aheadMs }
      })
    const connected = (how: 'live' | 'asking' | 'lost') =>
      set((before) => {
        const isLive = how === 'live'
        const isSame = before.isLive === isLive && (before.lost !== undefined) === (how === 'lost')
        return isSame ? before : { ...before, isLive, lost: how === 'lost' ? (before.lost ?? Date.now()) : undefined }
      })
    return follow(url, { known, connected })
  }, [url])
  useLayoutEffect(() => freeze((before) => (isPaused ? (before ?? seen.known) : undefined)), [isPaused, seen.known])
  return isPaused && frozen ? { ...seen, known: frozen } : seen
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

/** Changes the address of the page. `isStep`: Back returns to the address before. */
export type Go = (change: Change, isStep?: boolean) => void
type Change = Partial<Omit<PageAddress, 'item'>> & { readonly item?: string | undefined }

/** What the address of the page says, and a function that changes it. `views` are the keys of the page. */
export function usePlace(views: readonly string[]): readonly [PageAddress, Go] {
  const [place, set] = useState(() => placeOf(location.hash, views))
  useEffect(() => {
    const read = () => set(placeOf(location.hash, views))
    addEventListener('hashchange', read)
    addEventListener('popstate', read)
    return () => {
      removeEventListener('hashchange', read)
      removeEventListener('popstate', read)
    }
  }, [])
  const [go] = useState(() => (change: Change, isStep = false) => {
    const { item, ...rest } = { ...placeOf(location.hash, views), ...change }
    const hash = hashOf(item === undefined ? rest : { ...rest, item })
    if (hash === location.hash) return
    if (isStep) history.pushState(null, '', hash)
    else history.replaceState(null, '', hash)
    set(placeOf(hash, views))
  })
  return [place, go]
}

/** Gives another number when the colours of the page change: what is drawn in them has to be drawn again. */
export function useTheme(): number {
  const [changes, set] = useState(0)
  useEffect(() => {
    const all = ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(resolution: 1dppx)'].map((query) =>
      matchMedia(query),
    )
    const changed = () => set((count) => count + 1)
    for (const one of all) one.addEventListener('change', changed)
    return () => {
      for (const one of all) one.removeEventListener('change', changed)
    }
  }, [])
  return changes
}

/** Gives the current width of an element in pixels. The width is 0 before the first measurement. */
export function useWidth<E extends Element>(): [RefObject<E | null>, number] {
  const ref = useRef<E>(null)
  const [width, set] = useState(0)
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => set(Math.floor(entry?.contentRect.width ?? 0)))
    if (ref.current) observer.observe(ref.current)
    return () => observer.disconnect()
  }, [])
  return [ref, width]
}

/** What the agent answers. `why` says why the last request has no answer. */
export interface AgentAnswer<T> {
  readonly value?: T
  readonly why?: string
}

/**
 * Gives an answer of the agent at `path`, asked again when `key` changes. Empty before the first answer. A refused
 * request keeps the last answer and says why. One that does not reach the agent only keeps it.
 */
export function useAnswer<T>(path: string, key: unknown): AgentAnswer<T> {
  const [answer, set] = useState<AgentAnswer<T> & { readonly path: string }>()
  useEffect(() => {
    const end = new AbortController()
    const ask = async () => {
      const reply = await fetch(path, { signal: end.signal })
      if (reply.ok) return set({ path, value: (await reply.json()) as T })
      const why = await reply.text()
      set((before) => ({ ...(before?.path === path && before), path, why }))
    }
    ask().catch(() => {})
    return () => end.abort()
  }, [path, key])
  return answer?.path === path ? answer : {}
}

/** Gives a list of the agent as `useAnswer`, without why there is none. */
export function useList<T>(path: string, key: unknown): T | undefined {
  return useAnswer<T>(path, key).value
}

/**
 * Keeps the order of `sorted` while a pointer is on the list, or was moved on it within the last two seconds. So a row
 * does not move away from under a finger. Returns the order, and the listeners of the list.
 */
export function useCalmOrder<T>(sorted: readonly T[], keyOf: (one: T) => string | number, reset: string) {
  const [isHeld, hold] = useState(false)
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const before = useRef<{ reset: string; order: Map<string | number, number> }>({ reset: '', order: new Map() })
  useEffect(() => () => clearTimeout(timer.current), [])
  let order = sorted
  if (isHeld && before.current.reset === reset) {
    const places = before.current.order
    const place = (one: T) => places.get(keyOf(one)) ?? Number.POSITIVE_INFINITY
    order = sorted.toSorted((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)))
  }
  useLayoutEffect(() => {
    before.current = { reset, order: new Map(order.map((one, i) => [keyOf(one), i])) }
  })
  const touched = () => {
    hold(true)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => hold(false), 2000)
  }
  const left = () => {
    clearTimeout(timer.current)
    hold(false)
  }
  return [order, { onPointerMove: touched, onPointerLeave: left }] as const
}
