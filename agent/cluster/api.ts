// The cluster, as the Kubernetes API shows it. Begin to read here: only this file talks to the API server. `access.ts`
// finds the server and the credentials. `collection.ts` keeps the objects of one kind up to date.
import { shownUpTo, ValueError } from '../../lib/text/errors.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { UnavailableError } from '../scheduler/follow.ts'
import { isTraced, traced } from '../scheduler/spans.ts'
import type { Access, Tls } from './access.ts'

/** A refusal by the API server: the HTTP status, and the `reason` of its Status object. */
export class ApiError extends UnavailableError {
  override name = 'ApiError'
  readonly status: number
  readonly reason: string
  /** The pause that the server requests (Retry-After), in milliseconds. */
  readonly retryAfterMs: number

  constructor(message: string, given: Pick<ApiError, 'status' | 'reason'> & { readonly retryAfterMs?: number }) {
    super(message)
    this.status = given.status
    this.reason = given.reason
    this.retryAfterMs = given.retryAfterMs ?? 0
  }
}

/** The state of the API, for status and metrics. */
export interface ApiState {
  readonly connected: boolean
  /** The last error, until the API works again. */
  readonly error?: string
  /** The time of the last answer, in milliseconds since 1970. */
  readonly heard?: number
  /** How far this clock is ahead of the server's, in milliseconds. The server tells whole seconds. */
  readonly clockOffMs?: number
}

/** One page of a list, with its objects as the API returns them. */
export interface Page {
  readonly items: readonly unknown[]
  readonly resourceVersion: string
  /** The token for the next page. Absent on the last page. */
  readonly next?: string
}

interface ListMeta {
  readonly resourceVersion?: unknown
  readonly continue?: unknown
  readonly remainingItemCount?: unknown
}

/** An event of a watch (metav1.WatchEvent). */
export interface WatchEvent {
  readonly type: string
  readonly object: unknown
}

/** Query parameters. Undefined ones are left out. */
export type Query = Readonly<Record<string, string | number | boolean | undefined>>

/**
 * Time limit of an answer, in milliseconds. A server that accepts a connection and stays silent counts as no server.
 */
const ANSWER_MS = 30_000
/**
 * Objects per page. A page of 100 nodes has 1.2 MB. With 500 the list of 5,000 nodes takes 35 MB more memory at its
 * peak and no less time (bench/RESULTS.md).
 */
const PAGE = 100
/**
 * A watch ends after this many seconds plus a random part of the spread, so that the nodes do not return all at once.
 */
const WATCH_S = 240
const WATCH_SPREAD_S = 60
/** No object of the API has more characters, because etcd takes 1.5 MB. */
const LONGEST_LINE = 16_777_216
/** The part of an error's answer that is used, in characters. */
const EXPLAINED = 4096
/**
 * So much of what the server says is shown, in characters. A refusal has the name of a service account before the verb and
 * the resource.
 */
const SHOWN = 400

// Browsers take no options, and their types are known where the page imports words of the agent.
const WebSocketOfBun = WebSocket as unknown as new (url: URL, options: Bun.WebSocketOptions) => WebSocket

// By the HTTP status of the answer.
const requests = new Map<string, number>()

function count(code: string): void {
  requests.set(code, (requests.get(code) ?? 0) + 1)
}

/**
 * The requests of this process to the API server since its start, by the HTTP status of the answer. `none` counts those
 * without an answer.
 */
export function apiRequests(): ReadonlyMap<string, number> {
  return requests
}

// The lists that come in now.
const lists = new Set<{ read: number; left: number }>()

/** How many objects of the lists that come in now were read, and how many the server still has. */
export function listed(): { readonly read: number; readonly left: number } {
  return [...lists].reduce((sum, one) => ({ read: sum.read + one.read, left: sum.left + one.left }), {
    read: 0,
    left: 0,
  })
}

/** A client of one API server. */
export class Api {
  readonly #access: Access
  readonly #agent: string
  #state: ApiState = { connected: false }
  #lastError = ''
  #clockOffMs: number | undefined
  /**
   * The lists and watches that the role does not allow, or that the server does not have, by path. Answers to other
   * requests do not end such a refusal.
   */
  readonly #denied = new Map<string, string>()

  /** Sends nothing before the first call. `agent` is the program's name in the server's log. */
  constructor(access: Access, agent: string) {
    this.#access = access
    this.#agent = agent
  }

  /** The state of the API. */
  state(): ApiState {
    const [denied] = this.#denied.values()
    const state = this.#clockOffMs === undefined ? this.#state : { ...this.#state, clockOffMs: this.#clockOffMs }
    return denied === undefined ? state : { ...state, connected: false, error: denied }
  }

  /** Forgets that a list was refused, because it is somewhere else now. */
  forget(path: string): void {
    this.#denied.delete(path)
  }

  /** Gets an object. Returns undefined when there is none of this name. Throws UnavailableError. */
  async get(path: string, signal: AbortSignal): Promise<unknown> {
    try {
      return await this.#json('GET', path, {}, signal)
    } catch (cause) {
      if (cause instanceof ApiError && cause.status === 404) return undefined
      throw cause
    }
  }

  /** Creates an object in a list, and returns it. Throws UnavailableError. */
  async create(path: string, object: object, signal: AbortSignal): Promise<unknown> {
    return this.#json('POST', path, {}, signal, object)
  }

  /** Changes an object by a strategic merge patch, and returns the changed object. Throws UnavailableError. */
  async patch(path: string, change: object, signal: AbortSignal): Promise<unknown> {
    return this.#json('PATCH', path, {}, signal, change)
  }

  /** Deletes an object, and in the background what it owns. Throws UnavailableError. */
  async remove(path: string, signal: AbortSignal): Promise<void> {
    await this.#json('DELETE', path, { propagationPolicy: 'Background' }, signal)
  }

  /**
   * Lists in pages, so that no list is in memory as a whole. Each page has its own time limit. Throws UnavailableError.
   */
  async *list(path: string, query: Query, signal: AbortSignal): AsyncGenerator<Page> {
    let next: string | undefined
    const counts = { read: 0, left: 0 }
    lists.add(counts)
    try {
      do {
        const answer = (await this.#json('GET', path, { ...query, limit: PAGE, continue: next }, signal)) as
          | { items?: unknown; metadata?: ListMeta }
          | undefined
        const { items, metadata } = answer ?? {}
        // An empty list of Go is null. An answer without the key is no list.
        const isList = items === null || Array.isArray(items)
        if (!isList || typeof metadata?.resourceVersion !== 'string')
          throw this.#failed('it answered a list with something else')
        next = typeof metadata.continue === 'string' && metadata.continue !== '' ? metadata.continue : undefined
        const page = (items ?? []) as unknown[]
        counts.read += page.length
        // The server leaves it out for lists with a selector.
        counts.left = Number(metadata.remainingItemCount ?? 0) || 0
        yield { items: page, resourceVersion: metadata.resourceVersion, ...(next && { next }) }
      } while (next)
    } finally {
      lists.delete(counts)
    }
  }

  /**
   * One watch from a resource version to its end. `opened` is called when the server has accepted it. Ends without an
   * error only by the server's time limit or by the signal. Otherwise throws UnavailableError.
   */
  async *watch(
    path: string,
    query: Query,
    resourceVersion: string,
    signal: AbortSignal,
    opened: () => void = () => {},
  ): AsyncGenerator<WatchEvent> {
    const timeoutSeconds = WATCH_S + Math.floor(Math.random() * WATCH_SPREAD_S)
    const watching = { ...query, watch: true, allowWatchBookmarks: true, timeoutSeconds, resourceVersion }
    const response = await this.#ask('GET', path, watching, signal)
    this.#denied.delete(path)
    this.#hear()
    opened()
    try {
      for await (const line of linesOf(response.body ?? new Blob().stream(), LONGEST_LINE)) {
        this.#hear()
        yield (JSON.parse(line) ?? {}) as WatchEvent
      }
    } catch (cause) {
      if (signal.aborted) return
      const isCut = cause instanceof SyntaxError
      throw this.#failed(isCut ? 'the watch was cut in the middle of an object' : (cause as Error).message, cause)
    }
  }

  /**
   * Opens a WebSocket with this subprotocol. Its messages are ArrayBuffers. Throws UnavailableError: ApiError when the
   * server refuses it.
   */
  async openSocket(path: string, query: Query, protocol: string, signal: AbortSignal): Promise<WebSocket> {
    const [tls, headers] = await Promise.all([this.#access.tls(), this.#access.headers()])
    signal.throwIfAborted()
    const url = this.#url(path, query)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    const options = { protocols: [protocol], tls, headers: { 'User-Agent': this.#agent, ...headers } }
    const socket = new WebSocketOfBun(url, options as Bun.WebSocketOptions)
    socket.binaryType = 'arraybuffer'
    const { promise, resolve, reject } = Promise.withResolvers<boolean>()
    const ended = () => reject(signal.reason)
    socket.onopen = () => resolve(true)
    socket.onclose = () => resolve(false)
    signal.addEventListener('abort', ended, { once: true })
    try {
      if (await promise) return socket
    } catch (cause) {
      socket.close()
      throw cause
    } finally {
      signal.removeEventListener('abort', ended)
    }
    // A WebSocket does not say why it was refused. The same request by `fetch` does. Without the headers of an upgrade,
    // the server would not even try to reach the kubelet.
    const upgrade = {
      Connection: 'Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': crypto.getRandomValues(new Uint8Array(16)).toBase64(),
      'Sec-WebSocket-Protocol': protocol,
    }
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)])
    const response = await this.#request('GET', path, query, limit, undefined, upgrade)
    await response.body?.cancel()
    throw this.#failed(`it opens no ${protocol} for ${path}`)
  }

  async #json(method: string, path: string, query: Query, signal: AbortSignal, body?: object): Promise<unknown> {
    const limit = AbortSignal.timeout(ANSWER_MS)
    const response = await this.#ask(method, path, query, AbortSignal.any([signal, limit]), body)
    try {
      const answer = await response.json()
      this.#hear()
      return answer
    } catch (cause) {
      const late = `it did not finish its answer within ${ANSWER_MS / 1000} s`
      throw this.#failed(limit.aborted ? late : (cause as Error).message, cause)
    }
  }

  // Returns as soon as a successful answer begins.
  #ask(method: string, path: string, query: Query, signal: AbortSignal, body?: object): Promise<Response> {
    if (!isTraced()) return this.#request(method, path, query, signal, body)
    const { hostname, port, protocol } = new URL(this.#access.server)
    const attributes = {
      'http.request.method': method,
      'url.path': path,
      'server.address': hostname,
      'server.port': Number(port || (protocol === 'https:' ? 443 : 80)),
    }
    const outcome = ({ status }: Response) => ({ attributes: { 'http.response.status_code': status } })
    const about = { kind: 'client' as const, attributes, outcome }
    return traced(query['watch'] ? 'WATCH' : method, about, () => this.#request(method, path, query, signal, body))
  }

  // Only the beginning has a time limit, as a watch's body stays open.
  async #request(
    method: string,
    path: string,
    query: Query,
    signal: AbortSignal,
    body?: object,
    more: Readonly<Record<string, string>> = {},
  ): Promise<Response> {
    const [limit, begun] = [new AbortController(), performance.now()]
    const timer = setTimeout(() => limit.abort(), ANSWER_MS)
    const failed = (cause: unknown): never => {
      count('none')
      if (signal.aborted && performance.now() - begun < ANSWER_MS) {
        const silent = `The Kubernetes API at ${this.#access.server} has not answered yet`
        throw new UnavailableError(this.#state.error ?? silent, { cause })
      }
      const isLate = limit.signal.aborted || signal.aborted
      const why = isLate ? `it did not answer within ${ANSWER_MS / 1000} s` : reasonOf(cause as Error)
      throw this.#failed(why, cause)
    }
    const response = await this.#fetch(method, path, query, AbortSignal.any([signal, limit.signal]), body, more)
      .catch(failed)
      .finally(() => clearTimeout(timer))
    const told = Date.parse(response.headers.get('Date') ?? '')
    if (!Number.isNaN(told)) this.#clockOffMs = Date.now() - told
    count(`${response.status}`)
    // 101 is the answer to an upgrade.
    if (response.ok || response.status === 101) return response
    if (response.status === 401) this.#access.refused()
    throw await this.#refused(response, method, path, 'limit' in query || 'watch' in query)
  }

  async #fetch(
    method: string,
    path: string,
    query: Query,
    signal: AbortSignal,
    body: object | undefined,
    more: Readonly<Record<string, string>>,
  ): Promise<Response> {
    const [tls, headers]: [Tls, Readonly<Record<string, string>>] = await Promise.all([
      this.#access.tls(),
      this.#access.headers(),
    ])
    const url = this.#url(path, query)
    const type = body && { 'Content-Type': `application/${method === 'PATCH' ? 'strategic-merge-patch+' : ''}json` }
    // Without `timeout: false` Bun ends a body that is silent for five minutes.
    return fetch(url, {
      method,
      tls,
      signal,
      timeout: false,
      redirect: 'manual',
      headers: { Accept: 'application/json', 'User-Agent': this.#agent, ...type, ...more, ...headers },
      ...(body && { body: JSON.stringify(body) }),
    } as RequestInit)
  }

  #url(path: string, query: Query): URL {
    const url = new URL(`${this.#access.server}${path}`)
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value))
    return url
  }

  async #refused(response: Response, method: string, path: string, isFollowed: boolean): Promise<ApiError> {
    const body = await response.text().catch(() => '')
    const { message, reason } = statusOf(body.slice(0, EXPLAINED))
    const { status } = response
    const why = message ?? body.slice(0, EXPLAINED).trim().split('\n')[0] ?? ''
    const cause = why ? ` ${shownUpTo(SHOWN, why).slice(1, -1)}` : ''
    const { server, origin } = this.#access
    const answer = `${status}${cause}${hintOf(isFollowed && status === 404 ? 'unserved' : status, origin)}`
    const text = `The Kubernetes API at ${server} refused ${method} ${path}: ${answer}`
    const retryAfterMs = Math.max(0, Number(response.headers.get('Retry-After') ?? 0)) * 1000 || 0
    // A list that is missing is no normal answer: the API has no such kind. A missing object, a conflict and an expired
    // version are normal answers, so they do not change the state. Nor does a refused change: the server works, and the
    // caller reports the refusal.
    if ((status === 403 || status === 404) && isFollowed) this.#denied.set(path, text)
    else if (method === 'GET' && ![404, 409, 410].includes(status)) this.#note(text)
    return new ApiError(text, { status, reason: reason ?? '', retryAfterMs })
  }

  #failed(why: string, cause?: unknown): UnavailableError {
    const message =
      cause instanceof ValueError ? why : `The Kubernetes API at ${this.#access.server} does not answer: ${why}`
    this.#note(message)
    return new UnavailableError(message, { cause })
  }

  #hear(): void {
    this.#lastError = ''
    this.#state = { connected: true, heard: Date.now() }
  }

  #note(error: string): void {
    if (error !== this.#lastError) this.#state = { ...this.#state, connected: false, error }
    this.#lastError = error
  }
}

function statusOf(text: string): { message?: string; reason?: string } {
  try {
    const { message, reason } = JSON.parse(text) as { message?: unknown; reason?: unknown }
    return { ...(typeof message === 'string' && { message }), ...(typeof reason === 'string' && { reason }) }
  } catch {
    return {}
  }
}

function hintOf(status: number | 'unserved', origin: string): string {
  if (status === 'unserved') return '; want an API server that serves it'
  if (status === 401) return `; the credentials of ${origin} do not count`
  if (status === 403) return `; want a role that allows it for ${origin}`
  return ''
}

// Bun's messages only repeat the URL, or are empty.
function reasonOf(cause: Error & { readonly code?: string }): string {
  const known: Readonly<Record<string, string>> = {
    ConnectionRefused: 'the connection was refused',
    ECONNREFUSED: 'the connection was refused',
    ConnectionClosed: 'it closed the connection',
    ECONNRESET: 'it cut the connection',
    EHOSTUNREACH: 'there is no way to its address',
    ENETUNREACH: 'there is no way to its address',
    ETIMEDOUT: 'nobody answers at its address',
    FailedToOpenSocket: 'there is no way to its address',
    ENOTFOUND: 'its name is not known',
    EAI_AGAIN: 'its name is not known, or no name server answers',
    CERT_HAS_EXPIRED: 'its certificate has expired',
    CERT_NOT_YET_VALID: "its certificate is not valid yet; is this node's clock right?",
    UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is signed by an authority that is not known here',
    SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is signed by an authority that is not known here',
    DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by nobody but itself',
    ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for other names',
  }
  return known[cause.code ?? ''] ?? cause.message
}
