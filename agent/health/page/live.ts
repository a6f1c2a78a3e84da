import type { Status } from '../status.ts'

/** The callbacks for the agent's events. */
export interface Listener {
  /** A status arrived. `aheadMs` is the lead of the agent's clock over the browser's clock, in milliseconds. */
  status(status: Status, aheadMs: number): void
  /** The connection works, or it is lost. */
  connected(yes: boolean): void
}

/** A longer silence means that the connection is lost, because the agent sends an event at least every 15 s. */
const SILENCE_MS = 40_000
const AGAIN_MS = [1000, 1000, 2000, 5000, 10_000]

/**
 * Listens to the agent's events at `url`. Reconnects after each loss, as long as the page is open. Returns a function
 * that stops it.
 */
export function follow(url: string, listener: Listener): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let tries = 0

  function open(): void {
    source = new EventSource(url)
    source.addEventListener('status', received)
    source.addEventListener('beat', alive)
    source.addEventListener('error', lost)
    wait(lost, SILENCE_MS)
  }
  function received(event: MessageEvent<string>): void {
    alive()
    listener.status(JSON.parse(event.data), Number(event.lastEventId) - Date.now())
  }
  function alive(): void {
    tries = 0
    listener.connected(true)
    wait(lost, SILENCE_MS)
  }
  // Reconnects itself, because a browser gives up forever when it gets an HTTP error instead of events.
  function lost(): void {
    source?.close()
    listener.connected(false)
    wait(open, AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)] ?? 0)
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
