// The cluster as the Kubernetes API tells it. This file is the one place that speaks to the API server; `access.ts` finds it and says who asks, `collection.ts` keeps
// the objects of one kind up to date.
import { shown, ValueError } from '../../lib/text/errors.ts'
import { UnavailableError } from '../scheduler/follow.ts'
import type { Access, Tls } from './access.ts'

/** The API server refused: the HTTP status, and the `reason` of its Status object. */
export class ApiError extends UnavailableError {
  override name = 'ApiError'
  readonly status: number
  readonly reason: string
  /** How long the server wants to be left alone, in milliseconds. */
  readonly retryAfterMs: number

  constructor(message: string, { status, reason, retryAfterMs = 0 }: { readonly status: number; readonly reason: string; readonly retryAfterMs?: number }) {
    super(message)
    this.status = status
    this.reason = reason
    this.retryAfterMs = retryAfterMs
  }
}

/** How the API is doing, for status and metrics. */
export interface ApiState {
  readonly connected: boolean
  /** What was last wrong, as long as it is. */
  readonly error?: string
  /** When it last answered, in milliseconds since 1970. */
  readonly heard?: number
}

/** One page of a list: its objects as the API gives them. */
export interface Page {
  readonly items: readonly unknown[]
  readonly resourceVersion: string
  /** What the next page is asked with; absent on the last one. */
  readonly next?: string
}

/** What a watch tells (metav1.WatchEvent). */
export interface WatchEvent {
  readonly type: string
  readonly object: unknown
}

/** Query parameters; what is undefined is left out. */
export type Query = Readonly<Record<string, string | number | boolean | undefined>>

/** One answer has to be there by then: a server that accepts and says nothing is none. Milliseconds. */
const ANSWER_MS = 30_000
/** Objects in one page: 500 nodes are 6 MB. */
const PAGE = 500
/** A watch ends after so many seconds, and as many more at random: nodes do not come back all at once. */
const WATCH_S = 240
const WATCH_SPREAD_S = 60
/** No object of the API has more characters: etcd takes 1.5 MB. */
const LONGEST_LINE = 16_777_216
/** Of an answer that explains an error, so much is read. */
const EXPLAINED = 4096

/** A client of one API server. */
export class Api {
  readonly #access: Access
  readonly #agent: string
  #state: ApiState = { connected: false }
  #told = ''

  /** Nothing is sent before the first call. `agent` names the program to the server's log. */
  constructor(access: Access, agent: string) {
    this.#access = access
    this.#agent = agent
  }

  /** How the API is doing. */
  state(): ApiState {
    return this.#state
  }

  /** Gets an object; undefined when there is none of that name. Throws UnavailableError. */
  async get(path: string, signal: AbortSignal): Promise<unknown> {
    try {
      return await this.#json('GET', path, {}, signal)
    } catch (cause) {
      if (cause instanceof ApiError && cause.status === 404) return undefined
      throw cause
    }
  }

  /** Changes an object by a strategic merge patch; gives it as it is then. Throws UnavailableError. */
  async patch(path: string, change: object, signal: AbortSignal): Promise<unknown> {
    return this.#json('PATCH', path, {}, signal, change)
  }

  /** Lists in pages, each under a time limit of its own, so that no list is in memory as a whole. Throws UnavailableError. */
  async *list(path: string, query: Query, signal: AbortSignal): AsyncGenerator<Page> {
    let next: string | undefined
    do {
      const answer = (await this.#json('GET', path, { ...query, limit: PAGE, continue: next }, signal)) as { items?: unknown; metadata?: { resourceVersion?: unknown; continue?: unknown } } | undefined
      const { items, metadata } = answer ?? {}
      if (!Array.isArray(items ?? []) || typeof metadata?.resourceVersion !== 'string') throw this.#failed('it answered a list with something else')
      next = typeof metadata.continue === 'string' && metadata.continue !== '' ? metadata.continue : undefined
      yield { items: (items ?? []) as unknown[], resourceVersion: metadata.resourceVersion, ...(next && { next }) }
    } while (next)
  }

  /** One watch from a resource version, to its end. Throws UnavailableError for whatever ended it but the server's own time limit and the signal. */
  async *watch(path: string, query: Query, resourceVersion: string, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    const timeoutSeconds = WATCH_S + Math.floor(Math.random() * WATCH_SPREAD_S)
    const response = await this.#ask('GET', path, { ...query, watch: true, allowWatchBookmarks: true, timeoutSeconds, resourceVersion }, signal)
    this.#hear()
    try {
      for await (const line of lines(response)) {
        this.#hear()
        yield JSON.parse(line) as WatchEvent
      }
    } catch (cause) {
      if (signal.aborted) return
      throw this.#failed(cause instanceof SyntaxError ? 'the watch was cut in the middle of an object' : (cause as Error).message, cause)
    }
  }

  async #json(method: string, path: string, query: Query, signal: AbortSignal, body?: object): Promise<unknown> {
    const limit = AbortSignal.timeout(ANSWER_MS)
    const response = await this.#ask(method, path, query, AbortSignal.any([signal, limit]), body)
    try {
      const answer = await response.json()
      this.#hear()
      return answer
    } catch (cause) {
      throw this.#failed(limit.aborted ? `it did not finish its answer within ${ANSWER_MS / 1000} s` : (cause as Error).message, cause)
    }
  }

  // The answer has begun, and is no error. Its beginning has a time limit, its body has none.
  async #ask(method: string, path: string, query: Query, signal: AbortSignal, body?: object): Promise<Response> {
    const [limit, begun] = [new AbortController(), performance.now()]
    const timer = setTimeout(() => limit.abort(), ANSWER_MS)
    const response = await this.#fetch(method, path, query, AbortSignal.any([signal, limit.signal]), body)
      .catch((cause) => {
        if (signal.aborted && performance.now() - begun < ANSWER_MS) throw new UnavailableError(this.#state.error ?? `The Kubernetes API at ${this.#access.server} has not answered yet`, { cause })
        throw this.#failed(limit.signal.aborted || signal.aborted ? `it did not answer within ${ANSWER_MS / 1000} s` : reasonOf(cause as Error), cause)
      })
      .finally(() => clearTimeout(timer))
    if (response.ok) return response
    if (response.status === 401) this.#access.refused()
    throw await this.#refused(response, method, path)
  }

  async #fetch(method: string, path: string, query: Query, signal: AbortSignal, body?: object): Promise<Response> {
    const [tls, headers]: [Tls, Readonly<Record<string, string>>] = await Promise.all([this.#access.tls(), this.#access.headers()])
    const url = new URL(`${this.#access.server}${path}`)
    for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value))
    const type: Readonly<Record<string, string>> = body ? { 'Content-Type': 'application/strategic-merge-patch+json' } : {}
    // Bun cuts a body that says nothing for five minutes, unless told otherwise.
    return fetch(url, { method, tls, signal, timeout: false, redirect: 'manual', headers: { Accept: 'application/json', 'User-Agent': this.#agent, ...type, ...headers }, ...(body && { body: JSON.stringify(body) }) } as RequestInit)
  }

  async #refused(response: Response, method: string, path: string): Promise<ApiError> {
    const text = await response.text().catch(() => '')
    const { message, reason } = statusOf(text.slice(0, EXPLAINED))
    const { status } = response
    const why = message ?? text.slice(0, EXPLAINED).trim().split('\n')[0] ?? ''
    const told = `The Kubernetes API at ${this.#access.server} refused ${method} ${path}: ${status}${why ? ` ${shown(why).slice(1, -1)}` : ''}${hintOf(status, this.#access.origin)}`
    const retryAfterMs = Math.max(0, Number(response.headers.get('Retry-After') ?? 0)) * 1000 || 0
    // What is not there, or has gone on, is an answer like any other.
    if (![404, 409, 410].includes(status)) this.#note(told)
    return new ApiError(told, { status, reason: reason ?? '', retryAfterMs })
  }

  #failed(why: string, cause?: unknown): UnavailableError {
    const told = cause instanceof ValueError ? why : `The Kubernetes API at ${this.#access.server} does not answer: ${why}`
    this.#note(told)
    return new UnavailableError(told, { cause })
  }

  #hear(): void {
    this.#told = ''
    this.#state = { connected: true, heard: Date.now() }
  }

  #note(error: string): void {
    if (error !== this.#told) this.#state = { ...this.#state, connected: false, error }
    this.#told = error
  }
}

// A stream may be cut anywhere, in the middle of a line or of a letter.
async function* lines(response: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const piece of response.body ?? []) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split('\n')
    rest = parts.pop() ?? ''
    if (rest.length > LONGEST_LINE) throw new Error(`it sent an object of more than ${LONGEST_LINE} characters`)
    for (const part of parts) if (part !== '') yield part
  }
  if (rest !== '') yield rest
}

function statusOf(text: string): { message?: string; reason?: string } {
  try {
    const { message, reason } = JSON.parse(text) as { message?: unknown; reason?: unknown }
    return { ...(typeof message === 'string' && { message }), ...(typeof reason === 'string' && { reason }) }
  } catch {
    return {}
  }
}

function hintOf(status: number, origin: string): string {
  if (status === 401) return `; the credentials of ${origin} do not count`
  if (status === 403) return `; want a role that allows it for ${origin}`
  return ''
}

// Bun's own words name the URL again, or nothing.
function reasonOf(cause: Error & { readonly code?: string }): string {
  const known: Readonly<Record<string, string>> = {
    ConnectionRefused: 'the connection was refused',
    ConnectionClosed: 'it closed the connection',
    ECONNRESET: 'it cut the connection',
    FailedToOpenSocket: 'there is no way to its address',
    ENOTFOUND: 'its name is not known',
    EAI_AGAIN: 'its name is not known, or no name server answers',
    CERT_HAS_EXPIRED: 'its certificate has expired',
    UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is signed by an authority that is not known here',
    SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is signed by an authority that is not known here',
    DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by nobody but itself',
    ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for other names',
  }
  return known[cause.code ?? ''] ?? cause.message
}
