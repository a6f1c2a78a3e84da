import { type Known, known, type Patch, patched, type Whole } from '../messages.ts'

/** The callbacks for the agent's messages. */
export interface Listener {
  /** What is known now. `aheadMs` is the lead of the agent's clock over the browser's clock, in milliseconds. */
  known(now: Known, aheadMs: number): void
  /** The connection works, or it is lost. */
  connected(yes: boolean): void
}

/** A longer silence means that the connection is lost, because the agent sends an event at least every 15 s. */
const SILENCE_MS = 40_000
const AGAIN_MS = [1000, 1000, 2000, 5000, 10_000]

/**
 * Follows the agent's messages at `url`. Reconnects after each loss, as long as the page is open, and goes on after the
 * last message. Returns a function that stops it.
 */
export function follow(url: string, listener: Listener): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let [tries, last] = [0, '']
  let state: Known | undefined

  function open(): void {
    source = new EventSource(last === '' ? `${url}?v=2` : `${url}?v=2&after=${encodeURIComponent(last)}`)
    source.addEventListener('whole', (event) => received(event, (data) => known(data as Whole)))
    source.addEventListener('patch', (event) => received(event, (data) => state && patched(state, data as Patch)))
    source.addEventListener('open', alive)
    source.addEventListener('beat', alive)
    source.addEventListener('error', lost)
    wait(lost, SILENCE_MS)
  }
  function received(event: MessageEvent<string>, read: (data: unknown) => Known | undefined): void {
    alive()
    state = read(JSON.parse(event.data))
    last = event.lastEventId
    if (state) listener.known(state, state.at - Date.now())
  }
  function alive(): void {
    tries = 0
    listener.connected(true)
    wait(lost, SILENCE_MS)
  }
  // Reconnects itself, because a browser gives up forever when it gets an HTTP error instead of events. Waits a random
  // time more, so that all pages do not come back at once.
  function lost(): void {
    source?.close()
    listener.connected(false)
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
  }
}
