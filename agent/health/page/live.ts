import type { Status } from '../status.ts'

/** What comes in. */
export interface Ears {
  /** A status, and by how many milliseconds the agent's clock is ahead of the browser's. */
  status(status: Status, aheadMs: number): void
  /** The connection stands, or it is gone. */
  connected(yes: boolean): void
}

/** The agent says something at least every 15 s. */
const SILENCE_MS = 40_000
const AGAIN_MS = [1000, 1000, 2000, 5000, 10_000]

/** Listens to the agent's events, and asks again for as long as the page stands when the connection is lost. Gives what ends it. */
export function follow(url: string, ears: Ears): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let tries = 0

  function open(): void {
    source = new EventSource(url)
    source.addEventListener('status', heard)
    source.addEventListener('beat', alive)
    source.addEventListener('error', lost)
    wait(lost, SILENCE_MS)
  }
  function heard(event: MessageEvent<string>): void {
    alive()
    ears.status(JSON.parse(event.data), Number(event.lastEventId) - Date.now())
  }
  function alive(): void {
    tries = 0
    ears.connected(true)
    wait(lost, SILENCE_MS)
  }
  // Not left to the browser: it gives up for good when it gets an error instead of events.
  function lost(): void {
    source?.close()
    ears.connected(false)
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
