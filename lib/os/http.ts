import type { Socket, TCPSocketListener, UnixSocketListener } from 'bun'

/** A client's request. */
export interface Asked {
  readonly method: string
  /** As sent, but without the query. */
  readonly path: string
  readonly query: URLSearchParams
  /** The `Host` header. Empty if missing. */
  readonly host: string
  /** Both ends of the connection are loopback addresses of this machine. */
  readonly isOnLoopback: boolean
  /** The value of a header by its name in small letters, the first of several. Undefined if missing. */
  header(name: string): string | undefined
}
/** The reply to a request. */
export interface Reply {
  readonly status: number
  readonly type: string
  readonly headers?: Readonly<Record<string, string>>
  /** The whole body, or a function that starts a stream. A stream lasts until one side ends it. */
  readonly body: Body | ((sink: Sink) => Stream)
}
/** Text is sent as UTF-8. */
export type Body = string | Uint8Array
/** The output of a streamed body. */
export interface Sink {
  /** The client has not yet received all that was sent. Wait for `drained` before the next. */
  readonly busy: boolean
  send(body: Body): void
  end(): void
}
/** The callbacks of a stream, for events of its sink. */
export interface Stream {
  drained(): void
  closed(): void
}
/** The place to listen: an address and a port, or the path of a socket. */
export type ListenAddress = { readonly hostname: string; readonly port: number } | { readonly unix: string }

/**
 * The maximum number of connections of one listener. At the limit, a new connection replaces the oldest that has
 * not sent its request for a while. Without one, it replaces the oldest whose client has its reply, and then the oldest
 * without a request. A flood of such connections therefore blocks no client, and does not use up the agent's file descriptors.
 */
const CONNECTIONS = 256
/**
 * The maximum number of connections whose client has not taken all of its reply yet. At the limit, a long reply replaces
 * the one whose client has taken nothing for the longest while. Without one, the client is told to come again. Such
 * replies take memory.
 */
const UNREAD = 64
/** A reply up to this length fits into the kernel's buffer of a connection. */
const SHORT_BYTES = 16_384
/** A client that was given no time may be one of a crowd that comes at once. */
const WHILE_MS = 100
const HEAD_BYTES = 8192
const HEAD_MS = 5000
/** The limit for a client that does not receive its data, or that leaves a finished connection open. */
const STALLED_MS = 30_000
/** As the kernel writes them, also for IPv4 on a socket of IPv6. */
const LOOPBACK = /^(?:::ffff:)?127\.|^::1$/
const WORDS: Readonly<Record<number, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  200: 'OK',
  304: 'Not Modified',
  400: 'Bad Request',
  404: 'Not Found',
  405: 'Method Not Allowed',
  421: 'Misdirected Request',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
}

/**
 * Serves HTTP/1.1 with one request per connection. Does not use Bun.serve, because Bun.serve cannot limit the number of
 * connections. Throws the kernel's error when it cannot listen.
 */
export function listen(place: ListenAddress, answer: (asked: Asked) => Reply | Promise<Reply>): { stop(): void } {
  const open = new Set<Connection>()
  const hasRoom = () => {
    const unread = [...open].filter(({ busy }) => busy)
    if (unread.length < UNREAD) return true
    const [last] = unread.filter(({ idleMs }) => idleMs >= WHILE_MS).sort((a, b) => b.idleMs - a.idleMs)
    if (last) open.delete(last)
    last?.drop()
    return last !== undefined
  }
  const listener: TCPSocketListener<Connection> | UnixSocketListener<Connection> = Bun.listen<Connection>({
    ...place,
    socket: {
      open(socket) {
        if (open.size >= CONNECTIONS) {
          const last = replaceable([...open])
          // `close` may come later.
          if (last) open.delete(last)
          last?.leave()
        }
        socket.data = new Connection(socket, answer, hasRoom)
        if (open.size < CONNECTIONS) open.add(socket.data)
        else socket.data.reply(plain(503, `all ${CONNECTIONS} connections are in use`))
      },
      data: ({ data }, bytes) => data.read(bytes),
      drain: ({ data }) => data.flush(),
      close({ data }) {
        open.delete(data)
        data.closed()
      },
      error: ({ data }) => data.drop(),
    },
  } as Bun.TCPSocketListenOptions<Connection>)
  return {
    stop() {
      for (const one of open) one.end()
      listener.stop()
    },
  }
}

function replaceable(open: readonly Connection[]): Connection | undefined {
  const silent = open.filter(({ reading }) => reading)
  const finished = open.filter(({ isFinished }) => isFinished)
  return (
    silent.find(({ idleMs }) => idleMs >= WHILE_MS) ??
    finished.find(({ busy }) => !busy) ??
    silent[0] ??
    finished.find(({ idleMs }) => idleMs >= WHILE_MS)
  )
}

/** Makes a reply from one line of text. */
export function plain(status: number, text: string, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, type: 'text/plain; charset=utf-8', headers, body: `${text}\n` }
}

const CROWDED = plain(503, `${UNREAD} clients have not taken their answers yet`, { 'Retry-After': '1' })

/** One connection. It reads one request, writes one reply and closes. */
class Connection implements Sink {
  reading = true
  #socket: Socket<Connection>
  readonly #answer: (asked: Asked) => Reply | Promise<Reply>
  readonly #hasRoom: () => boolean
  /** When the connection began, when its reply began, or when the client last took something. */
  #movedAt = performance.now()
  #head = ''
  #left: Uint8Array = new Uint8Array()
  #ending = false
  #stream: Stream | undefined
  #timer: Timer | undefined

  /** `hasRoom` is asked before a long reply. */
  constructor(socket: Socket<Connection>, answer: (asked: Asked) => Reply | Promise<Reply>, hasRoom: () => boolean) {
    this.#socket = socket
    this.#answer = answer
    this.#hasRoom = hasRoom
    this.#wait(HEAD_MS)
  }

  /** The reply is complete. The client may not have received all of it. */
  get isFinished(): boolean {
    return this.#ending
  }

  get busy(): boolean {
    return this.#left.length > 0
  }

  /** For how long the client has sent no request, or has taken nothing of its reply, in milliseconds. */
  get idleMs(): number {
    return performance.now() - this.#movedAt
  }

  read(bytes: Buffer): void {
    // Ignores data after the request, because each connection gets only one reply.
    if (!this.reading) return
    this.#head += bytes.toString('latin1')
    const end = /\r?\n\r?\n/.exec(this.#head)
    if ((end?.index ?? this.#head.length) > HEAD_BYTES) {
      this.reply(plain(431, `the request is longer than ${HEAD_BYTES} bytes`))
      return
    }
    const asked = end ? parse(this.#head.slice(0, end.index), this.#socket) : undefined
    if (asked) void this.#ask(asked)
    else if (end) this.reply(plain(400, 'this is no HTTP request'))
  }

  async #ask(asked: Asked): Promise<void> {
    this.#begin()
    try {
      this.reply(await this.#answer(asked), asked.method)
    } catch (cause) {
      this.reply(plain(500, `Cannot answer: ${(cause as Error).message}`))
    }
  }

  reply(wanted: Reply, method = 'GET'): void {
    this.#begin()
    const isLong = typeof wanted.body !== 'function' && wanted.body.length > SHORT_BYTES
    const { status, type, headers = {}, body } = isLong && !this.#hasRoom() ? CROWDED : wanted
    const content = typeof body === 'function' ? undefined : bytesOf(body)
    const length = content && { 'Content-Length': content.length }
    const all = { 'Content-Type': type, ...length, Connection: 'close', ...headers }
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    this.send(`HTTP/1.1 ${status} ${WORDS[status] ?? ''}\r\n${lines.join('')}\r\n`)
    if (content && method !== 'HEAD') this.send(content)
    if (typeof body !== 'function') this.end()
    else if (this.#socket.readyState > 0) this.#stream = body(this)
  }

  send(body: Body): void {
    if (this.#ending || body.length === 0) return
    const bytes = bytesOf(body)
    this.#left = this.busy ? Buffer.concat([this.#left, bytes]) : bytes
    this.flush()
  }

  /** Closes the connection after the pending data is written. */
  end(): void {
    this.#ending = true
    this.flush()
  }

  flush(): void {
    const before = this.#left.length
    if (before > 0) this.#left = this.#left.subarray(Math.max(this.#socket.write(this.#left), 0))
    if (this.#left.length < before) {
      this.#movedAt = performance.now()
      this.#rest()
    }
    if (this.busy || this.#ending) this.#wait(STALLED_MS)
    if (this.busy) return
    // Closes only the sending half. After a full close, more data from the client would destroy the part of the reply
    // that the client has not read yet.
    if (this.#ending) this.#socket.shutdown()
    else this.#stream?.drained()
  }

  drop(): void {
    this.#socket.terminate()
  }

  /** Closes the connection for another one. What the client has got stays with it. */
  leave(): void {
    if (this.#ending && !this.busy) this.#socket.end()
    else this.drop()
  }

  closed(): void {
    this.#rest()
    this.#stream?.closed()
    this.#stream = undefined
  }

  #begin(): void {
    this.reading = false
    this.#movedAt = performance.now()
    this.#head = ''
    this.#rest()
  }

  // Starts the time limit. A second call does not extend a running limit. After work that held the agent up, timers run
  // before what the client has sent is read. So a late timer waits a moment more.
  #wait(ms: number): void {
    const due = performance.now() + ms
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      if (performance.now() - due > WHILE_MS) this.#wait(WHILE_MS)
      else this.drop()
    }, ms)
  }

  #rest(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}

function parse(
  head: string,
  { remoteAddress, localAddress }: Pick<Socket<Connection>, 'remoteAddress' | 'localAddress'>,
): Asked | undefined {
  const [line = '', ...fields] = head.split(/\r?\n/)
  const [, method, target] = /^([A-Z]{1,16}) (\/[!-~]*) HTTP\/1\.[01]$/.exec(line) ?? []
  if (method === undefined || target === undefined) return undefined
  const headers = new Map<string, string>()
  for (const field of fields) {
    const [, given, value = ''] = /^([^\s:]+):(.*)$/.exec(field) ?? []
    const name = given?.toLowerCase()
    // A proxy may read such lines in another way (RFC 9112, sections 3.2 and 5).
    if (name === undefined || (name === 'host' && headers.has(name))) return undefined
    if (!headers.has(name)) headers.set(name, value.trim())
  }
  const [path = '', query = ''] = target.split(/\?(.*)/s)
  const header = (name: string) => headers.get(name)
  const isOnLoopback = [remoteAddress, localAddress].every((one) => LOOPBACK.test(one ?? ''))
  return { method, path, query: new URLSearchParams(query), host: header('host') ?? '', isOnLoopback, header }
}

function bytesOf(body: Body): Uint8Array {
  return typeof body === 'string' ? new TextEncoder().encode(body) : body
}
