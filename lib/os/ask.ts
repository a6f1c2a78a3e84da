import { CniError, CODE } from '../text/errors.ts'
import { type Dialled, dial } from './sockets.ts'

const NEWLINE = 10

/**
 * A program that answers questions on a unix socket: its socket, its name in messages, and what to do when it is away.
 */
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
 * Asks a program one question: sends it at once, and gives the function that waits for the answer. A plugin starts its
 * tools in between. Both are one line of JSON. Waits as long as the program sends data within each `quietMs`
 * milliseconds: it sends empty lines while it works. This thread does nothing else meanwhile. Both functions throw the
 * program's error as CniError, and Unreachable when the program cannot be reached, ends, or stays silent.
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
    const line: number[] = []
    try {
      for (;;) {
        const found = hear(quietMs)
        if (found === undefined) throw new Unreachable(to, `it is silent for ${quietMs / 1000} s`)
        if (found.length === 0) throw new Unreachable(to, 'it ended')
        // An empty line is a sign of life.
        for (const byte of found) {
          if (byte !== NEWLINE) line.push(byte)
          else if (line.length > 0) return replyOf(new TextDecoder().decode(Uint8Array.from(line)), to)
        }
      }
    } catch (cause) {
      throw cause instanceof CniError ? cause : new Unreachable(to, (cause as Error).message)
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
