import { inside } from '../../lib/os/netns.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'

/**
 * How long a sink counts the bytes of one connection, how long a client sends at most, and when it no longer waits for
 * the answer. Milliseconds.
 */
const [COUNTS_MS, SENDS_MS, ANSWER_MS] = [1000, 1500, 6000]
const PIECE = new Uint8Array(256 * 1024)
const BITS = 8
const ANSWER = /^(\d+) ([\d.]+)\n$/

/**
 * Listens at an address of a namespace, and counts the bytes of each connection for one second. Then it tells the client
 * how many came, and in how many milliseconds. The client closes at once. Throws Error when the address cannot be had.
 */
export function serveSink(ns: Netns, ip: Ip): { readonly port: number; close(): void } {
  const sink = inside(ns, () =>
    Bun.listen<{ bytes: number; start: number | undefined; isTold: boolean }>({
      hostname: ip,
      port: 0,
      socket: {
        open(socket) {
          socket.data = { bytes: 0, start: undefined, isTold: false }
        },
        data(socket, piece) {
          const { data } = socket
          const now = performance.now()
          data.start ??= now
          data.bytes += piece.length
          if (data.isTold || now - data.start < COUNTS_MS) return
          data.isTold = true
          // A close with unread bytes would reset the connection, and the answer would be lost.
          socket.write(`${data.bytes} ${now - data.start}\n`)
        },
        error: (socket) => socket.terminate(),
      },
    }),
  )
  return { port: sink.port, close: () => sink.stop(true) }
}

/**
 * Sends to a sink as much as the way takes, from a namespace. Gives what arrived, in megabits a second, or in words why
 * that is not known. Sends for one and a half seconds at most, and takes six at most.
 */
export function pour(ns: Netns, to: Ip, port: number): Promise<number | string> {
  return new Promise((resolve) => {
    let socket: Bun.Socket<undefined> | undefined
    let [said, until, isOver] = ['', 0, false]
    const end = (outcome: number | string) => {
      clearTimeout(timer)
      isOver = true
      // The first outcome counts: terminate() calls `close` at once.
      resolve(outcome)
      socket?.terminate()
    }
    const late = `no answer from ${to} port ${port} in ${ANSWER_MS / 1000} s`
    const timer = setTimeout(() => end(late), ANSWER_MS)
    const push = (to: Bun.Socket<undefined>) => {
      // Among fast nodes the socket may always have room.
      while (performance.now() < until && to.write(PIECE) === PIECE.length);
    }
    const refusal = `${to} port ${port} refuses the connection, or a rule or router on the way does`
    const connecting = inside(ns, () =>
      Bun.connect({
        hostname: to,
        port,
        socket: {
          open(opened) {
            if (isOver) return opened.terminate()
            socket = opened
            until = performance.now() + SENDS_MS
            push(opened)
          },
          drain: push,
          data(_, piece) {
            said += piece.toString()
            const mbits = mbitsOf(said)
            if (mbits !== undefined) end(mbits)
          },
          close: () => end('the connection ended before the receiver said what arrived'),
          error: (_, cause) => end(cause.message),
          connectError: () => end(refusal),
        },
      }),
    )
    connecting.catch(() => end(refusal))
  })
}

// The whole megabits a second of an answer. Undefined while it is not whole.
function mbitsOf(answer: string): number | undefined {
  const [, bytes, ms] = ANSWER.exec(answer) ?? []
  if (bytes === undefined || ms === undefined) return undefined
  return Math.round((Number(bytes) * BITS) / Number(ms) / 1000)
}
