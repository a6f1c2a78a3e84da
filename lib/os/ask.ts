import { CniError, CODE } from '../text/errors.ts'
import { type Dialled, dial } from './sockets.ts'

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
          try {
            resolve(replyOf(text, to))
          } catch (cause) {
            reject(cause)
          }
          peer.end()
        },
        close: () => lost('it ended'),
        error: (_, cause) => lost(cause.message),
        connectError: (_, cause) => lost((cause as NodeJS.ErrnoException).code ?? cause.message),
      },
    }).catch((cause: NodeJS.ErrnoException) => lost(cause.code ?? cause.message))
  })
}

/**
 * The same without the event loop: sends the question at once, and gives the function that waits for the answer. A plugin starts its tools
 * in between. Both throw as `ask`.
 */
export function question<Reply extends object>(to: Answerer, asked: object, quietMs: number): () => Reply {
  let peer: Dialled | undefined
  try {
    peer = dial(to.socket)
    peer.say(`${JSON.stringify(asked)}\n`)
  } catch (cause) {
    throw new Unreachable(to, (cause as Error).message)
  }
  const { hear, close } = peer
  return () => {
    const decoder = new TextDecoder()
    try {
      for (let text = ''; ; ) {
        const found = hear(quietMs)
        if (found === undefined) throw new Unreachable(to, `it is silent for ${quietMs / 1000} s`)
        if (found.length === 0) throw new Unreachable(to, 'it ended')
        text += decoder.decode(found, { stream: true })
        if (text.trimStart().includes('\n')) return replyOf(text, to)
      }
    } finally {
      close()
    }
  }
}

function replyOf<Reply extends object>(text: string, { name }: Answerer): Reply {
  let read: { readonly error?: { readonly code: number; readonly msg: string; readonly details?: string } }
  try {
    read = JSON.parse(text)
  } catch (cause) {
    throw new CniError(CODE.internal, `Cannot read what ${name} answered`, (cause as Error).message, { cause })
  }
  const { error, ...reply } = read
  if (error) throw new CniError(error.code, error.msg, error.details ?? '')
  return reply as Reply
}
