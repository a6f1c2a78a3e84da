import type { Status } from '../agent/state/status.ts'

/** The agent sends something at least every 15 s. An agent that is silent for longer is away. Milliseconds. */
const SILENT_MS = 35_000
// Server-sent events (HTML, section 9.2): fields in lines, an empty line between events.
const EVENT = /^event: (\w+)$.*?^data: ([^\n]*)$/ms

/**
 * The messages of the agent at a socket, each with the name of its event: everything at once, and what differs at every
 * change (agent/state/messages.ts). Ends when the agent ends or with the signal. Throws the error of the connection.
 */
export async function* messages(
  socket: string,
  signal?: AbortSignal,
): AsyncGenerator<readonly [event: string, data: string]> {
  const silence = new AbortController()
  const timer = setTimeout(() => silence.abort(new DOMException('The agent is silent', 'TimeoutError')), SILENT_MS)
  try {
    const both = AbortSignal.any([silence.signal, ...(signal ? [signal] : [])])
    const answer = await asked(socket, '/events', both)
    const decoder = new TextDecoder()
    let rest = ''
    for await (const piece of answer.body ?? []) {
      timer.refresh()
      const events = (rest + decoder.decode(piece, { stream: true })).split('\n\n')
      rest = events.pop() ?? ''
      for (const event of events) {
        const [, name = '', data] = EVENT.exec(event) ?? []
        if (data !== undefined) yield [name, data]
      }
    }
  } finally {
    clearTimeout(timer)
    silence.abort()
  }
}

/**
 * The statuses of the agent at a socket: one at once, and one at every change. Ends when the agent ends. Throws the
 * error of the connection.
 */
export async function* statuses(socket: string): AsyncGenerator<Status> {
  let before = ''
  for await (const [event] of messages(socket)) {
    if (event === 'beat') continue
    const text = await (await asked(socket, '/status', AbortSignal.timeout(SILENT_MS))).text()
    // A message may be about what has happened, which the status does not have.
    if (text !== before) yield JSON.parse(text) as Status
    before = text
  }
}

async function asked(socket: string, path: string, signal: AbortSignal): Promise<Response> {
  // A compressed stream has no end when the agent ends.
  const headers = { 'Accept-Encoding': 'identity' }
  const answer = await fetch(`http://agent${path}`, { unix: socket, signal, headers })
  if (!answer.ok) throw new Error(`it answers ${answer.status}: ${(await answer.text()).trim()}`)
  return answer
}
