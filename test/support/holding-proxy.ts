import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'

/** A proxy that holds answers back, as those do that buffer. */
export interface HoldingProxy {
  /** How many requests of a path it has passed on. */
  asked(path: string): number
  /** Passes everything on at once from now on. */
  release(): void
  stop(): void
}
interface Holding {
  /** An answer is passed on when it has so many bytes, or has ended. */
  readonly bytes: number
  /** The status and the headers wait as well. */
  readonly holdsHead: boolean
  /** An answer that has not been passed on after so long is given up, with 504 or a cut. Milliseconds. */
  readonly limitMs: number
}

/** Starts one on a port of 127.0.0.1, before the server at `to`. */
export async function holdingProxy(port: number, to: string, holding: Holding): Promise<HoldingProxy> {
  const counts = new Map<string, number>()
  let isHolding = true
  const server = createServer((asked, answer) => {
    const path = (asked.url ?? '').replace(/\?.*/, '')
    counts.set(path, (counts.get(path) ?? 0) + 1)
    const through = request(new URL(asked.url ?? '', to), { headers: asked.headers, agent: false }, (from) =>
      pass(from, answer, isHolding ? holding : undefined),
    )
    through.on('error', () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()))
    answer.on('close', () => through.destroy())
    through.end()
  })
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  return {
    asked: (path) => counts.get(path) ?? 0,
    release() {
      isHolding = false
    },
    stop() {
      server.close()
      server.closeAllConnections()
    },
  }
}

function pass(from: IncomingMessage, answer: ServerResponse, holding: Holding | undefined): void {
  const begin = () => answer.writeHead(from.statusCode ?? 502, from.headers)
  if (!holding) {
    begin().flushHeaders()
    from.pipe(answer)
    return
  }
  if (!holding.holdsHead) begin().flushHeaders()
  let held: Buffer[] | undefined = []
  const flush = () => {
    clearTimeout(limit)
    if (!answer.headersSent) begin()
    for (const one of held ?? []) answer.write(one)
    held = undefined
  }
  const limit = setTimeout(() => {
    if (answer.headersSent) answer.destroy()
    else answer.writeHead(504).end()
  }, holding.limitMs)
  answer.on('close', () => clearTimeout(limit))
  from.on('data', (bytes: Buffer) => {
    if (!held) {
      answer.write(bytes)
      return
    }
    held.push(bytes)
    if (held.reduce((sum, { length }) => sum + length, 0) >= holding.bytes) flush()
  })
  from.on('end', () => {
    flush()
    answer.end()
  })
}
