import type { Socket } from 'bun'
import { log } from '../../lib/os/log.ts'
import type { Question, Reply } from '../../lib/pools/dhcp.ts'
import { errorOf } from '../../lib/verbs/serve.ts'
import { readQuestion } from './reading.ts'

/** The socket to listen on: a path, or a file descriptor that systemd has opened (sd_listen_fds(3)). */
export type Place = { readonly unix: string } | { readonly fd: number }
/** Answers a question. `signal` aborts when the plugin no longer waits for the answer. */
export type Handle = (question: Question, signal: AbortSignal) => Promise<Reply>

interface Asker {
  text: string
  asked: boolean
  readonly gone: AbortController
}

// The maximum length of a question. An ADD contains the provided options (255 bytes each). A GC contains all attachments of a network.
const LONGEST = 1 << 20
/** The interval of the empty lines that tell a waiting plugin that the daemon still works. */
const SIGN_MS = 2000

/** Listens for the plugin's questions, one line of JSON per connection. Throws the kernel's error when it cannot listen. */
export function listen(place: Place, handle: Handle): { stop(): void } {
  const listener = Bun.listen<Asker>({
    ...place,
    socket: {
      open(socket) {
        socket.data = { text: '', asked: false, gone: new AbortController() }
      },
      data(socket, bytes) {
        const asker = socket.data
        if (asker.asked) return
        asker.text += bytes.toString()
        asker.asked = asker.text.includes('\n')
        if (asker.asked) void answer(socket, handle)
        else if (asker.text.length > LONGEST) socket.end()
      },
      close: ({ data }) => data.gone.abort(),
      error: ({ data }) => data.gone.abort(),
    },
  } as Bun.UnixSocketOptions<Asker>)
  return { stop: () => listener.stop() }
}

async function answer(socket: Socket<Asker>, handle: Handle): Promise<void> {
  const { text, gone } = socket.data
  const sign = setInterval(() => socket.write('\n'), SIGN_MS)
  const reply = await replied(text, handle, gone.signal)
  clearInterval(sign)
  socket.end(`${JSON.stringify(reply)}\n`)
}

async function replied(text: string, handle: Handle, signal: AbortSignal): Promise<Reply> {
  try {
    return await handle(readQuestion(text), signal)
  } catch (cause) {
    const error = errorOf(cause)
    log(`dhcp: ${error.msg}`)
    return { error }
  }
}
