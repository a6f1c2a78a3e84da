import { known, type Patch, patched, type ReaderState, type Whole } from '../state/messages.ts'

/** The callbacks for the agent's messages. */
export interface Listener {
  /** What is known now. `aheadMs` is the lead of the agent's clock over the browser's clock, in milliseconds. */
  known(now: ReaderState, aheadMs: number): void
  /** Messages come at once, the agent is asked every `ASK_MS`, or nothing comes. */
  connected(how: 'live' | 'asking' | 'lost'): void
}

/** A message in the answer to `once`. */
interface Told {
  readonly event: 'whole' | 'patch'
  readonly id: string
  readonly data: unknown
}

/** A longer silence means that the connection is lost, because the agent sends an event at least every 15 s. */
const SILENCE_MS = 40_000
const AGAIN_MS = [1000, 1000, 2000, 5000, 10_000]
/**
 * The first message comes at once. Without one after so long, a proxy on the way holds the stream back until it is long
 * enough or over. So does one that ends a begun stream without a message, or after HELD_MS. An agent that is away
 * refuses sooner.
 */
const FIRST_MS = 5000
const HELD_MS = 1000
/** How often the agent is asked then, in milliseconds, and when the stream is tried again. */
export const ASK_MS = 2000
const STREAM_AGAIN_MS = 300_000

/**
 * Follows the agent's messages at `url`. Reconnects after each loss, as long as the page is open, and goes on after the
 * last message. Asks again and again where no stream comes through. Returns a function that stops it.
 */
export function follow(url: string, listener: Listener): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let [tries, last] = [0, '']
  let state: ReaderState | undefined
  let [opened, hasBegun, hasHeard] = [0, false, false]
  const end = new AbortController()

  function after(): string {
    return last === '' ? '' : `after=${encodeURIComponent(last)}`
  }
  function open(): void {
    ;[opened, hasBegun, hasHeard] = [performance.now(), false, false]
    source = new EventSource(`${url}?${after()}`)
    for (const name of ['whole', 'patch'] as const)
      source.addEventListener(name, (event) => {
        alive()
        received({ event: name, id: event.lastEventId, data: JSON.parse(event.data) })
      })
    source.addEventListener('beat', alive)
    source.addEventListener('open', () => {
      hasBegun = true
    })
    source.addEventListener('error', () => {
      if (!hasHeard && (hasBegun || performance.now() - opened > HELD_MS)) held()
      else lost()
    })
    wait(held, FIRST_MS)
  }
  function received({ event, id, data }: Told): void {
    state = event === 'whole' ? known(data as Whole) : state && patched(state, data as Patch)
    last = id
    if (state) listener.known(state, state.at - Date.now())
  }
  function alive(): void {
    ;[tries, hasHeard] = [0, true]
    listener.connected('live')
    wait(lost, SILENCE_MS)
  }
  function held(): void {
    source?.close()
    void ask(performance.now() + STREAM_AGAIN_MS)
  }
  async function ask(until: number): Promise<void> {
    try {
      const signal = AbortSignal.any([end.signal, AbortSignal.timeout(SILENCE_MS)])
      const answer = await fetch(`${url}?once&${after()}`, { signal })
      if (!answer.ok) throw new Error(answer.statusText)
      const all: readonly Told[] = await answer.json()
      tries = 0
      listener.connected('asking')
      for (const one of all) received(one)
      wait(() => (performance.now() < until ? void ask(until) : open()), ASK_MS)
    } catch {
      if (!end.signal.aborted) lost()
    }
  }
  // Reconnects itself, because a browser gives up forever when it gets an HTTP error instead of events. Waits a random
  // time more, so that all pages do not come back at once.
  function lost(): void {
    source?.close()
    listener.connected('lost')
    const ms = AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)] ?? 0
    wait(open, ms * (1 + Math.random() / 4))
  }
  function wait(what: () => void, ms: number): void {
    clearTimeout(timer)
    timer = setTimeout(what, ms)
  }
  open()
  return () => {
    clearTimeout(timer)
    source?.close()
    end.abort()
  }
}
