import { log } from '../../lib/os/log.ts'
import { plain, type Reply, type Sink, type Stream } from './http.ts'
import type { Status } from './status.ts'

/** The maximum number of listeners. */
const LISTENERS = 16
/**
 * The shortest pause between two statuses allows four per second. SHARE limits the work for large statuses to a
 * twentieth of a core.
 */
const QUIET_MS = 250
const SHARE = 20
const BEAT_MS = 15_000
/** The time after which a browser reconnects when the connection is lost. */
const RETRY_MS = 1000

interface Source {
  status(): Status
  changes(signal: AbortSignal): AsyncIterable<Status>
}
interface Listener {
  readonly sink: Sink
  /** The newest status that waits until the client has received the earlier data. */
  waiting?: string
}

/** Sends statuses as server-sent events. Without listeners it follows no changes and has no timer. */
export class Feed {
  #source: Source
  #listeners = new Set<Listener>()
  #rest = () => {}

  constructor(source: Source) {
    this.#source = source
  }

  /**
   * Opens a stream for a new listener. The stream sends a status at once, a status on every change, and a `beat` event
   * every 15 s. The `id` of an event is its send time in milliseconds since 1970. Replies with 503 when there are
   * already 16 listeners.
   */
  listen(): Reply {
    if (this.#listeners.size >= LISTENERS)
      return plain(503, `${LISTENERS} listen to events already`, { 'Retry-After': '5' })
    return { status: 200, type: 'text/event-stream', body: (sink) => this.#enter(sink) }
  }

  /** Ends every stream. */
  stop(): void {
    for (const { sink } of this.#listeners) sink.end()
  }

  #enter(sink: Sink): Stream {
    const one = { sink }
    const now = JSON.stringify(this.#source.status())
    sink.send(`retry: ${RETRY_MS}\n${event('status', now)}`)
    this.#listeners.add(one)
    if (this.#listeners.size === 1) this.#begin(now)
    return {
      drained: () => deliver(one),
      closed: () => {
        if (this.#listeners.delete(one) && this.#listeners.size === 0) this.#rest()
      },
    }
  }

  #begin(first: string): void {
    const following = new AbortController()
    const beats = setInterval(() => this.#beat(), BEAT_MS)
    this.#rest = () => {
      clearInterval(beats)
      following.abort()
    }
    void this.#follow(first, following.signal)
  }

  async #follow(first: string, signal: AbortSignal): Promise<void> {
    try {
      let last = first
      for await (const changed of this.#source.changes(signal)) {
        const started = performance.now()
        const text = JSON.stringify(changed)
        if (text !== last) this.#send(event('status', text))
        last = text
        await pause(Math.max(QUIET_MS, SHARE * (performance.now() - started)), signal)
      }
    } catch (cause) {
      if (!signal.aborted) log('agent: cannot tell what changes', { error: (cause as Error).message })
    }
    // Ends the streams after an error. Listeners reconnect and get the current status.
    if (!signal.aborted) this.stop()
  }

  #send(text: string): void {
    for (const one of this.#listeners) {
      one.waiting = text
      deliver(one)
    }
  }

  #beat(): void {
    for (const { sink } of this.#listeners) if (!sink.busy) sink.send(`: still here\n${event('beat', '{}')}`)
  }
}

function deliver(one: Listener): void {
  if (one.waiting === undefined || one.sink.busy) return
  const text = one.waiting
  delete one.waiting
  one.sink.send(text)
}

function event(name: string, data: string): string {
  return `event: ${name}\nid: ${Date.now()}\ndata: ${data}\n\n`
}

// Resolves early when the signal aborts.
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
    function done(): void {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
  })
}
