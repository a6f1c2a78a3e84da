import type { Status } from '../agent/state/status.ts'

/** The agent sends something at least every 15 s. An agent that is silent for longer is away. Milliseconds. */
const SILENT_MS = 35_000
// Server-sent events (HTML, section 9.2): fields in lines, an empty line between events.
const EVENT = /^event: status$.*?^data: ([^\n]*)$/ms

/**
 * The statuses of the agent at a socket: one at once, and one at every change. Ends when the agent ends. Throws the
 * error of the connection.
 */
export async function* statuses(socket: string): AsyncGenerator<Status> {
  const silence = new AbortController()
  const timer = setTimeout(() => silence.abort(new DOMException('The agent is silent', 'TimeoutError')), SILENT_MS)
  try {
    const answer = await fetch('http://agent/events', { unix: socket, signal: silence.signal })
    if (!answer.ok) throw new Error(`it answers ${answer.status}: ${(await answer.text()).trim()}`)
    const decoder = new TextDecoder()
    let rest = ''
    for await (const piece of answer.body ?? []) {
      timer.refresh()
      const events = (rest + decoder.decode(piece, { stream: true })).split('\n\n')
      rest = events.pop() ?? ''
      for (const event of events) {
        const [, data] = EVENT.exec(event) ?? []
        if (data !== undefined) yield JSON.parse(data) as Status
      }
    }
  } finally {
    clearTimeout(timer)
    silence.abort()
  }
}
