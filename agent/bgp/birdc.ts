import { shown } from '../../lib/text/errors.ts'
import { printable } from '../../lib/text/printable.ts'

// The client of BIRD's control socket. An answer is lines of a number and a text. `1002-text` is a row that goes on,
// ` text` goes on with the same number, and `0000 text` ends the answer. Numbers from 8000 are errors (BIRD,
// doc/reply_codes).

/** The time limit for an answer of BIRD, in milliseconds. BIRD reads ten thousand routes in less. */
const LIMIT_MS = 10_000
/** The most bytes of an answer: a thousand sessions have a tenth of this. */
const MOST_BYTES = 16 << 20

/** One line of an answer. */
export interface ReplyLine {
  readonly code: number
  readonly text: string
}

/** An error that BIRD answers, in its own words. */
export class BirdError extends Error {
  override name = 'BirdError'
}

/** The state of a session that exchanges routes (RFC 4271). */
export const ESTABLISHED = 'Established'

/** A session as BIRD describes it. */
export interface SessionState {
  readonly protocol: string
  /** `Established`, `Active`, `Idle` and the other states of RFC 4271; `Passive` for a side that waits, `Closing`, `Down`. */
  readonly state: string
  /** The last change of the state, in milliseconds since 1970. */
  readonly since: number
  /** The prefixes that were taken, and those that were announced. Of both families. */
  readonly received: number
  readonly sent: number
  /** Why the session is not there: BIRD's last error. */
  readonly reason?: string
}

/**
 * Sends one command to the BIRD at a socket, and gives the lines of its answer. Throws BirdError with BIRD's own words,
 * and Error when BIRD does not answer in time, answers too much, or is not there.
 */
export async function askBird(socket: string, command: string, limitMs = LIMIT_MS): Promise<readonly ReplyLine[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly ReplyLine[]>()
  const decoder = new TextDecoder()
  const reader = makeReader()
  let [bytes, isGreeted] = [0, false]
  const late = setTimeout(() => reject(new Error(`BIRD has not answered for ${limitMs / 1000} s`)), limitMs)
  const take = (connection: { write(text: string): number }, text: string) => {
    for (const answer of reader(text)) {
      if (isGreeted) return resolve(answer)
      isGreeted = true
      connection.write(`${command}\n`)
    }
  }
  const connecting = Bun.connect({
    unix: socket,
    socket: {
      data(connection, chunk) {
        bytes += chunk.byteLength
        if (bytes > MOST_BYTES) return reject(new Error(`BIRD answers more than ${MOST_BYTES} bytes`))
        try {
          take(connection, decoder.decode(chunk, { stream: true }))
        } catch (cause) {
          reject(cause as Error)
        }
      },
      close: () => reject(new Error('BIRD has closed the connection')),
      error: (_, cause) => reject(cause),
    },
  })
  // The connection is closed after an answer and after a failure.
  connecting.then(
    (connection) => void promise.finally(() => connection.end()).catch(() => {}),
    (cause) => reject(new Error(`BIRD does not answer at ${socket}: ${(cause as Error).message}`, { cause })),
  )
  try {
    const lines = await promise
    const wrong = lines.find(({ code }) => code >= 8000)
    if (wrong) throw new BirdError(printable(wrong.text.slice(0, 300)))
    return lines
  } finally {
    clearTimeout(late)
  }
}

/**
 * Splits what BIRD sends into answers. Each call gives the answers that are complete then. Throws Error for a line that
 * is none of this protocol.
 */
export function makeReader(): (text: string) => (readonly ReplyLine[])[] {
  let rest = ''
  let lines: ReplyLine[] = []
  return (text) => {
    const [whole, last] = splitLast(rest + text)
    rest = last
    const answers: (readonly ReplyLine[])[] = []
    for (const line of whole) {
      const [, number, sign, said = ''] = /^(\d{4})([ -])(.*)$/.exec(line) ?? []
      const previous = lines.at(-1)
      if (number !== undefined) lines.push({ code: Number(number), text: said })
      else if (/^[ +]/.test(line) && previous) lines.push({ code: previous.code, text: line.slice(1) })
      else throw new Error(`BIRD answers ${shown(line)}, which is no answer of BIRD 2`)
      if (sign !== ' ') continue
      answers.push(lines)
      lines = []
    }
    return answers
  }
}

function splitLast(text: string): [string[], string] {
  const lines = text.split('\n')
  const last = lines.pop() ?? ''
  return [lines, last]
}

/** Reads the answer to `show protocols all`: the sessions of BGP. What else BIRD runs is left out. */
export function sessionsOf(lines: readonly ReplyLine[]): SessionState[] {
  const found: SessionState[] = []
  let isBgp = false
  for (const { code, text } of lines) {
    if (code === ROW) {
      const row = /^(\S+)\s+(\S+)\s+\S+\s+(\S+)\s+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*(.*)$/.exec(text)
      isBgp = row?.[2] === 'BGP'
      if (!row || !isBgp) continue
      const [, protocol = '', , phase, since = '', info = ''] = row
      const [said = '', ...more] = info.trim().split(/\s+/)
      const reason = more.join(' ')
      // BIRD runs in UTC.
      const at = Date.parse(`${since.replace(' ', 'T')}Z`)
      const state = said === ESTABLISHED && phase !== 'up' ? 'Closing' : said || 'Down'
      found.push({ protocol, state, since: at, received: 0, sent: 0, ...(reason && { reason }) })
      continue
    }
    const last = found.at(-1)
    if (code !== DETAIL || !isBgp || !last) continue
    const [, imported, exported] = /^\s*Routes:\s+(\d+) imported,(?:.*?) ?(\d+) exported/.exec(text) ?? []
    if (imported !== undefined)
      found[found.length - 1] = {
        ...last,
        received: last.received + Number(imported),
        sent: last.sent + Number(exported),
      }
    const [, error] = /^\s*Last error:\s+(.*)$/.exec(text) ?? []
    if (error !== undefined && last.state !== ESTABLISHED && last.reason === undefined)
      found[found.length - 1] = { ...last, reason: error }
  }
  return found
}

const ROW = 1002
const DETAIL = 1006
