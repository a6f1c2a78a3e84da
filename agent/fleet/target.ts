import { readFileSync } from 'node:fs'
import { shown, ValueError } from '../../lib/text/errors.ts'

/** What an agent answers: the status of HTTP, and the body as text. */
export interface Reply {
  readonly status: number
  readonly body: string
}
/** An agent that can be asked. */
export interface Target {
  /** The name of its node, else the address at which it is asked. */
  readonly name: string
  /** The zone of its node, if the cluster tells it. */
  readonly zone?: string
  /** Why it cannot be asked. It is then counted among those that do not answer. */
  readonly problem?: string
  /** Asks for a path. Throws Error, whose message goes on after `node-a: `. */
  ask(path: string, signal: AbortSignal): Promise<Reply>
}
/** The agents of a fleet at this moment, sorted in no way. */
export interface Targets {
  readonly all: readonly Target[]
  /** Why some or all agents are not known, in one sentence. */
  readonly note?: string
}

/** The most bytes of an answer after it is decompressed. A status of 10,000 peers has 2.4 MB. */
export const LONGEST_ANSWER = 8_000_000
const PORT = 9469
/** What Bun says of a connection that fails. */
const REASONS: Readonly<Record<string, string>> = {
  ConnectionRefused: 'no agent listens there: the connection is refused',
  ECONNREFUSED: 'no agent listens there: the connection is refused',
  ConnectionClosed: 'the connection was closed before the answer',
  ECONNRESET: 'the connection was cut',
  EHOSTUNREACH: 'there is no way to its address',
  ENETUNREACH: 'there is no way to its address',
  FailedToOpenSocket: 'there is no way to its address',
  ENOTFOUND: 'its name is not known',
}

/**
 * Reads a list of addresses: `HOST:PORT,…`, or the path of a file with one per line. Without a port it is 9469. `token` is
 * for agents that want one (`--status-token-file`). Throws ValueError.
 */
export function targetsOf(list: string, token?: string): Target[] {
  const isFile = /^[./~]/.test(list)
  const words = (isFile ? fileOf(list) : list).split(/[,\s]+/).filter((one) => one !== '')
  const addresses = [...new Set(words.map(addressOf))]
  if (addresses.length === 0) throw new ValueError(`Cannot read --agents ${shown(list)}: it names no agent`)
  return addresses.map((address) => ({
    name: address,
    ask: (path, signal) => askByHttp(`http://${address}${path}`, token, signal),
  }))
}

function fileOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').replace(/#.*$/gm, '')
  } catch (cause) {
    throw new ValueError(`Cannot read --agents ${shown(path)}: ${(cause as Error).message}`, { cause })
  }
}

function addressOf(word: string): string {
  const isBare = word.includes(':') && !word.includes('[') && word.split(':').length > 2
  const url = URL.parse(`http://${isBare ? `[${word}]` : word}`)
  const isPlain = url && url.pathname === '/' && !url.search && !url.hash && !url.username && !word.endsWith('/')
  if (!isPlain || url.hostname === '')
    throw new ValueError(`Cannot read --agents ${shown(word)}: want HOST:PORT, such as 192.0.2.7:9469`)
  // URL leaves the port of HTTP out.
  const port = /:(\d+)$/.exec(isBare ? '' : word)?.[1] ?? PORT
  return `${url.hostname}:${port}`
}

async function askByHttp(url: string, token: string | undefined, signal: AbortSignal): Promise<Reply> {
  const headers = { Accept: 'application/json', ...(token !== undefined && { Authorization: `Bearer ${token}` }) }
  try {
    const answer = await fetch(url, { signal, redirect: 'manual', headers })
    return { status: answer.status, body: await bodyOf(answer) }
  } catch (cause) {
    if (signal.aborted) throw cause
    const { code = '', message } = cause as Error & { readonly code?: string }
    throw new Error(REASONS[code] ?? message, { cause })
  }
}

async function bodyOf(answer: Response): Promise<string> {
  const decoder = new TextDecoder()
  let [text, length] = ['', 0]
  for await (const piece of answer.body ?? []) {
    length += piece.length
    if (length > LONGEST_ANSWER) throw new Error(`its answer is longer than ${LONGEST_ANSWER / 1e6} MB`)
    text += decoder.decode(piece, { stream: true })
  }
  return text + decoder.decode()
}
