import { constants, deflateRawSync } from 'node:zlib'
import { type Asked, type Body, plain, type Reply, type Sink, type Stream } from '../../lib/os/http.ts'
import { log } from '../../lib/os/log.ts'
import { pause } from '../scheduler/pause.ts'
import { type Message, Patches } from '../state/patches.ts'
import type { Recorder } from '../state/recorder.ts'
import type { Status } from '../state/status.ts'
import { acceptsGzip } from './guard.ts'

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
/** What readers had is kept for so long after the last one has gone, so that it can go on. */
const KEPT_MS = 300_000
/** The head of a gzip stream (RFC 1952) without a name and a time. */
const GZIP_HEAD = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)
/** Asks proxies to pass on each message at once: nginx, and those that compress. */
const UNHELD = { 'X-Accel-Buffering': 'no', 'Cache-Control': 'no-store, no-transform' }

interface Source {
  status(): Status
  changes(signal: AbortSignal): AsyncIterable<Status>
}
interface Listener {
  readonly sink: Sink
  readonly isGzip: boolean
  /** Sends what the listener does not have yet, if there is something. Called when it has received the earlier data. */
  deliver(): void
}

/** Sends statuses as server-sent events. Without listeners it follows no changes and has no timer but one. */
export class Feed {
  readonly #source: Source
  readonly #recorder: Recorder
  readonly #listeners = new Set<Listener>()
  #patches: Patches | undefined
  #forgetting: Timer | undefined
  /** When the last status was taken in for who asks again and again (performance.now()). */
  #taken = Number.NEGATIVE_INFINITY
  /** The last text that was compressed. */
  #compressed: { readonly text: string; readonly bytes: Uint8Array } = { text: '', bytes: new Uint8Array() }
  #rest = () => {}

  constructor(source: Source, recorder: Recorder) {
    this.#source = source
    this.#recorder = recorder
  }

  /**
   * Opens a stream for a new listener, with a `beat` event every 15 s. Replies with 503 when there are already 16
   * listeners. It sends the messages of `state/messages.ts`: `whole`, or the patches since the header `Last-Event-ID` or
   * the query's `after`, and then a `patch` on every change.
   *
   * With `once` it replies with a list of the same messages, and ends. That passes a proxy that holds streams back.
   */
  listen({ query, header }: Pick<Asked, 'query' | 'header'>): Reply {
    if (query.has('once')) return this.#once(query.get('after') ?? '')
    if (this.#listeners.size >= LISTENERS)
      return plain(503, `${LISTENERS} listen to events already`, { 'Retry-After': '5' })
    const isGzip = acceptsGzip(header('accept-encoding'))
    const last = header('last-event-id') ?? query.get('after') ?? ''
    return {
      status: 200,
      type: 'text/event-stream',
      headers: { ...UNHELD, Vary: 'Accept-Encoding', ...(isGzip && { 'Content-Encoding': 'gzip' }) },
      body: (sink) => this.#enter({ sink, isGzip }, last),
    }
  }

  /** Ends every stream. */
  stop(): void {
    clearTimeout(this.#forgetting)
    this.#patches = undefined
    for (const { sink } of this.#listeners) sink.end()
  }

  #enter(first: Omit<Listener, 'deliver'>, last: string): Stream {
    if (first.isGzip) first.sink.send(GZIP_HEAD)
    const one = { ...first, deliver: this.#begun(first, last) }
    this.#listeners.add(one)
    if (this.#listeners.size === 1) this.#begin()
    return {
      drained: () => one.deliver(),
      closed: () => {
        if (!this.#listeners.delete(one)) return
        if (this.#listeners.size > 0) return
        this.#end()
        this.#forgetLater()
      },
    }
  }

  // Gives what delivers. A listener that was busy gets all patches since, or the whole when they are too many.
  #begun(one: Omit<Listener, 'deliver'>, last: string): () => void {
    const patches = this.#keep()
    this.#take(this.#source.status())
    let sent = last
    const deliver = () => {
      if (one.sink.busy || sent === patches.id) return
      const messages = patches.since(sent) ?? [patches.whole()]
      sent = patches.id
      const text = messages.map(({ event: name, id, data }) => event(name, id, data)).join('')
      one.sink.send(this.#bytesFor(one, text))
    }
    // A reader that has everything hears at once that the way is open.
    const isNews = sent !== patches.id
    one.sink.send(this.#bytesFor(one, `retry: ${RETRY_MS}\n\n${isNews ? '' : event('beat', undefined, '{}')}`))
    deliver()
    return deliver
  }

  // Many readers that ask again and again share the work.
  #once(last: string): Reply {
    const patches = this.#keep()
    if (this.#listeners.size === 0) this.#forgetLater()
    if (performance.now() - this.#taken >= QUIET_MS) {
      this.#take(this.#source.status())
      this.#taken = performance.now()
    }
    const messages = patches.since(last) ?? [patches.whole()]
    const texts = messages.map(({ event: name, id, data }) => `{"event":"${name}","id":"${id}","data":${data}}`)
    return { status: 200, type: 'application/json', body: `[${texts.join()}]\n` }
  }

  #keep(): Patches {
    clearTimeout(this.#forgetting)
    this.#patches ??= new Patches(this.#recorder)
    return this.#patches
  }

  #forgetLater(): void {
    clearTimeout(this.#forgetting)
    this.#forgetting = setTimeout(() => {
      this.#patches = undefined
      this.#taken = Number.NEGATIVE_INFINITY
    }, KEPT_MS)
    this.#forgetting.unref()
  }

  #take(status: Status): Message | undefined {
    const patch = this.#patches?.take(status)
    if (patch) for (const one of this.#listeners) one.deliver()
    return patch
  }

  #begin(): void {
    const following = new AbortController()
    const beats = setInterval(() => this.#beat(), BEAT_MS)
    this.#rest = () => {
      clearInterval(beats)
      following.abort()
    }
    void this.#follow(following.signal)
  }

  #end(): void {
    this.#rest()
    this.#compressed = { text: '', bytes: new Uint8Array() }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    try {
      for await (const changed of this.#source.changes(signal)) {
        const started = performance.now()
        this.#take(changed)
        await pause(Math.max(QUIET_MS, SHARE * (performance.now() - started)), signal)
      }
    } catch (cause) {
      if (!signal.aborted) log('agent: cannot tell what changes', { error: (cause as Error).message })
    }
    // Ends the streams after an error. Listeners reconnect and get the current status.
    if (!signal.aborted) this.stop()
  }

  #beat(): void {
    for (const one of this.#listeners) {
      if (one.sink.busy) continue
      // A beat must not change the id of the last message that a browser has.
      one.sink.send(this.#bytesFor(one, `: still here\n${event('beat', undefined, '{}')}`))
    }
  }

  // Each text is compressed by itself and ends at a whole byte (Z_SYNC_FLUSH), so that all listeners share the work.
  #bytesFor({ isGzip }: Pick<Listener, 'isGzip'>, text: string): Body {
    if (!isGzip) return text
    if (this.#compressed.text !== text)
      this.#compressed = { text, bytes: deflateRawSync(text, { finishFlush: constants.Z_SYNC_FLUSH, level: 1 }) }
    return this.#compressed.bytes
  }
}

function event(name: string, id: string | undefined, data: string): string {
  return `event: ${name}\n${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`
}
