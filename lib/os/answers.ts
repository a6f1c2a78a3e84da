import type { Socket } from 'bun'
import type * as v from 'valibot'
import { CniError, CODE, errorOf, shown } from '../text/errors.ts'
import { read, type Shape } from '../text/shape.ts'
import { log } from './log.ts'

// The answering side of `lib/os/ask.ts`: one question and one answer per connection, each a line of JSON. The DHCP
// daemon and the agent's policy use it.

/** The socket to listen on: a path, or a file descriptor that systemd has opened (sd_listen_fds(3)). */
export type AnswerSocket = { readonly unix: string } | { readonly fd: number }
/** Answers a question, which is any text. `signal` aborts when the asker is gone. Throws the error for the answer. */
export type Answer = (question: string, signal: AbortSignal) => Promise<object>
/** How one command is read and answered. */
export interface Command<Q = unknown> {
  /** The question with its key for the command. */
  readonly shape: v.GenericSchema<unknown, Q>
  answer(question: Q, signal: AbortSignal): Promise<object>
}

interface Asker {
  text: string
  asked: boolean
  /** The bytes of the answer that the socket did not take yet. */
  rest: Uint8Array
  readonly gone: AbortController
}

// The maximum length of a question in characters. A GC of DHCP has all attachments of a network.
const LONGEST = 1 << 20
/** The interval of the empty lines that tell a waiting asker that the program still works. */
const SIGN_MS = 2000

/** Listens for questions. `name` begins the lines of the log. Throws the kernel's error when it cannot listen. */
export function listen(place: AnswerSocket, name: string, answer: Answer): { stop(): void } {
  const listener = Bun.listen<Asker>({
    ...place,
    socket: {
      open(socket) {
        socket.data = { text: '', asked: false, rest: new Uint8Array(), gone: new AbortController() }
      },
      data(socket, bytes) {
        const asker = socket.data
        if (asker.asked) return
        asker.text += bytes.toString()
        asker.asked = asker.text.includes('\n')
        if (asker.asked) void reply(socket, name, answer)
        else if (asker.text.length > LONGEST) socket.end()
      },
      drain: send,
      close: ({ data }) => data.gone.abort(),
      error: ({ data }) => data.gone.abort(),
    },
  } as Bun.UnixSocketOptions<Asker>)
  return { stop: () => listener.stop() }
}

/** Answers by a table of commands. `key` is the key of the question that names its command. Throws as `readCommand`. */
export function commands(key: string, table: Readonly<Record<string, Command>>): Answer {
  const shapes = new Map(Object.entries(table).map(([name, { shape }]) => [name, shape]))
  return async (text, signal) => {
    const question = readCommand(key, shapes, text) as Readonly<Record<string, string>>
    return (table[question[key] as string] as Command).answer(question, signal)
  }
}

/**
 * Reads a question by the shape of its command, which the key `key` names. Throws CniError 6 for a text that is no JSON
 * and for an unknown command, and ValueError for any other wrong question.
 */
export function readCommand(key: string, shapes: ReadonlyMap<string, v.GenericSchema>, text: string): unknown {
  const raw = json(text)
  const hasKey = typeof raw === 'object' && raw !== null && Object.hasOwn(raw, key)
  const asked = hasKey ? (raw as Record<string, unknown>)[key] : undefined
  const shape = typeof asked === 'string' ? shapes.get(asked) : undefined
  if (!shape) {
    const what = asked === undefined ? `no ${key}` : `the ${key} ${shown(asked)}`
    const why = `it has ${what}: want one of ${[...shapes.keys()].join(', ')}`
    throw new CniError(CODE.decode, 'Cannot read the question', why)
  }
  const question = read(shape as Shape<unknown>, raw).value
  // The same key in other letters counts, too.
  if ((question as Record<string, unknown>)[key] !== asked)
    throw new CniError(CODE.decode, 'Cannot read the question', `it has ${key} twice: want it once`)
  return question
}

/** Names the type of a command's question. */
export function command<Q>(shape: v.GenericSchema<unknown, Q>, answer: Command<Q>['answer']): Command {
  return { shape, answer } as Command
}

async function reply(socket: Socket<Asker>, name: string, answer: Answer): Promise<void> {
  const { text, gone } = socket.data
  const sign = setInterval(() => socket.write('\n'), SIGN_MS)
  const given = await answered(text, name, answer, gone.signal)
  clearInterval(sign)
  socket.data.rest = Buffer.from(`${JSON.stringify(given)}\n`)
  send(socket)
}

// The kernel takes as much as its buffer holds. Bun calls this again when there is room.
function send(socket: Socket<Asker>): void {
  const { data } = socket
  if (data.rest.length === 0) return
  data.rest = data.rest.subarray(Math.max(0, socket.write(data.rest)))
  if (data.rest.length === 0) socket.end()
}

async function answered(text: string, name: string, answer: Answer, signal: AbortSignal): Promise<object> {
  try {
    return await answer(text, signal)
  } catch (cause) {
    const error = errorOf(cause)
    log(`${name}: ${error.msg}`)
    return { error }
  }
}

function json(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new CniError(CODE.decode, 'Cannot read the question: it is no JSON', (cause as Error).message, { cause })
  }
}
