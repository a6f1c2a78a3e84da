import type { Socket, TCPSocketListener, UnixSocketListener } from 'bun'

/** What a client asks for: the path as it was sent, without the query, and the `Host` it believes to talk to. */
export interface Asked {
  readonly method: string
  readonly path: string
  readonly host: string
}
/** What it gets. */
export interface Reply {
  readonly status: number
  readonly type: string
  readonly headers?: Readonly<Record<string, string>>
  /** All of it, or what goes on until one side ends it. */
  readonly body: string | ((sink: Sink) => Stream)
}
/** Where a body that goes on is written to. */
export interface Sink {
  /** The client has not taken all of what was sent: wait for `drained`. */
  readonly busy: boolean
  send(text: string): void
  end(): void
}
/** What wants to know of a sink. */
export interface Stream {
  drained(): void
  closed(): void
}
/** Where to listen: an address and a port, or the path of a socket. */
export type Place = { readonly hostname: string; readonly port: number } | { readonly unix: string }

/** Of one listener. A newcomer at the limit takes the place of who has kept it waiting longest: a flood of silent connections shuts nobody out, and takes no file descriptors from the agent's work. */
const CONNECTIONS = 64
const HEAD_BYTES = 8192
const HEAD_MS = 5000
/** As long may a client take nothing of what it gets, or leave a connection open that is done. */
const STALLED_MS = 30_000
const WORDS: Readonly<Record<number, string>> = {
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

/** Serves HTTP/1.1, one request a connection. Not Bun.serve: that has no limit on connections. Throws what the kernel says when the place cannot be had. */
export function listen(place: Place, answer: (asked: Asked) => Reply | Promise<Reply>): { stop(): void } {
  const open = new Set<Connection>()
  const listener: TCPSocketListener<Connection> | UnixSocketListener<Connection> = Bun.listen<Connection>({
    ...place,
    socket: {
      open(socket) {
        if (open.size >= CONNECTIONS) [...open].find(({ reading }) => reading)?.drop()
        socket.data = new Connection(socket, answer)
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

/** A line of text as a reply. */
export function plain(status: number, text: string, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, type: 'text/plain; charset=utf-8', headers, body: `${text}\n` }
}

/** One connection: reads a request, writes a reply, and is gone. */
class Connection implements Sink {
  reading = true
  #socket: Socket<Connection>
  #answer: (asked: Asked) => Reply | Promise<Reply>
  #head = ''
  #left: Uint8Array = new Uint8Array()
  #ending = false
  #stream: Stream | undefined
  #timer: Timer | undefined

  constructor(socket: Socket<Connection>, answer: (asked: Asked) => Reply | Promise<Reply>) {
    this.#socket = socket
    this.#answer = answer
    this.#wait(HEAD_MS)
  }

  get busy(): boolean {
    return this.#left.length > 0
  }

  read(bytes: Buffer): void {
    // What comes after the request is no business of ours: there is one answer to a connection.
    if (!this.reading) return
    this.#head += bytes.toString('latin1')
    const end = /\r?\n\r?\n/.exec(this.#head)
    if ((end?.index ?? this.#head.length) > HEAD_BYTES) {
      this.reply(plain(431, `the request is longer than ${HEAD_BYTES} bytes`))
      return
    }
    const asked = end ? parse(this.#head.slice(0, end.index)) : undefined
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

  reply({ status, type, headers = {}, body }: Reply, method = 'GET'): void {
    this.#begin()
    const length = typeof body === 'string' ? { 'Content-Length': Buffer.byteLength(body) } : {}
    const lines = Object.entries({ 'Content-Type': type, ...length, Connection: 'close', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
    this.send(`HTTP/1.1 ${status} ${WORDS[status] ?? ''}\r\n${lines.join('')}\r\n${typeof body === 'string' && method !== 'HEAD' ? body : ''}`)
    if (typeof body === 'string') this.end()
    else if (this.#socket.readyState > 0) this.#stream = body(this)
  }

  send(text: string): void {
    if (this.#ending || text === '') return
    const bytes = new TextEncoder().encode(text)
    this.#left = this.busy ? Buffer.concat([this.#left, bytes]) : bytes
    this.flush()
  }

  /** What was sent is still written. */
  end(): void {
    this.#ending = true
    this.flush()
  }

  flush(): void {
    const before = this.#left.length
    if (before > 0) this.#left = this.#left.subarray(Math.max(this.#socket.write(this.#left), 0))
    if (this.#left.length < before) this.#rest()
    if (this.busy || this.#ending) this.#wait(STALLED_MS)
    if (this.busy) return
    // Half of it: closing at once would throw away what the client has not read yet, when it goes on sending.
    if (this.#ending) this.#socket.shutdown()
    else this.#stream?.drained()
  }

  drop(): void {
    this.#socket.terminate()
  }

  closed(): void {
    this.#rest()
    this.#stream?.closed()
    this.#stream = undefined
  }

  #begin(): void {
    this.reading = false
    this.#head = ''
    this.#rest()
  }

  // From the first moment that there is something to wait for: asking again does not prolong it.
  #wait(ms: number): void {
    this.#timer ??= setTimeout(() => this.drop(), ms)
  }

  #rest(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}

function parse(head: string): Asked | undefined {
  const [line = '', ...fields] = head.split(/\r?\n/)
  const [, method, target] = /^([A-Z]{1,16}) (\/[!-~]*) HTTP\/1\.[01]$/.exec(line) ?? []
  if (method === undefined || target === undefined) return undefined
  const host = fields.map((field) => /^host:(.*)$/i.exec(field)?.[1]?.trim()).find((value) => value !== undefined)
  return { method, path: target.replace(/\?.*/, ''), host: host ?? '' }
}
