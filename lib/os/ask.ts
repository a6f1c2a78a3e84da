import { CniError, CODE } from '../text/errors.ts'

/** A program that answers questions on a unix socket: its socket, its name in messages, and what to do when it is away. */
export interface Answerer {
  readonly socket: string
  /** `the DHCP daemon` */
  readonly name: string
  readonly advice: string
}

/** CniError 11: no program answers at the socket. */
export class Unreachable extends CniError {
  override name = 'Unreachable'
  constructor({ socket, name, advice }: Answerer, why: string) {
    super(CODE.tryLater, `Cannot reach ${name} at ${socket}: ${why}`, advice)
  }
}

/**
 * Asks a program one question, and waits for its answer. Both are one line of JSON. Waits as long as the program sends data within each
 * `quietMs` milliseconds: it sends empty lines while it works. Throws the program's error as CniError. Throws Unreachable when the program
 * cannot be reached, ends, or stays silent.
 */
export function ask<Reply extends object>(to: Answerer, question: object, quietMs: number): Promise<Reply> {
  return new Promise((resolve, reject) => {
    let text = ''
    const down = (why: string) => reject(new Unreachable(to, why))
    const silent = `it is silent for ${quietMs / 1000} s`
    let timer = setTimeout(down, quietMs, silent)
    // A waiting timer would keep the process for as long after a failure.
    const lost = (why: string) => {
      clearTimeout(timer)
      down(why)
    }
    Bun.connect({
      unix: to.socket,
      socket: {
        open: (peer) => void peer.write(`${JSON.stringify(question)}\n`),
        data(peer, bytes) {
          clearTimeout(timer)
          timer = setTimeout(down, quietMs, silent)
          text += bytes.toString()
          if (!text.trimStart().includes('\n')) return
          clearTimeout(timer)
          // Settles before the connection ends, because an end without an answer is an error.
          settle(text, to, resolve, reject)
          peer.end()
        },
        close: () => lost('it ended'),
        error: (_, cause) => lost(cause.message),
        connectError: (_, cause) => lost((cause as NodeJS.ErrnoException).code ?? cause.message),
      },
    }).catch((cause: NodeJS.ErrnoException) => lost(cause.code ?? cause.message))
  })
}

function settle<Reply extends object>(text: string, { name }: Answerer, resolve: (reply: Reply) => void, reject: (cause: Error) => void): void {
  try {
    const { error, ...reply } = JSON.parse(text)
    if (error) reject(new CniError(error.code, error.msg, error.details ?? ''))
    else resolve(reply as Reply)
  } catch (cause) {
    reject(new CniError(CODE.internal, `Cannot read what ${name} answered`, (cause as Error).message, { cause }))
  }
}
