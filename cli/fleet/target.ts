import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
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

/** The most bytes of an answer, before and after it is decompressed. A status of 10,000 peers has 2.4 MB. */
const LONGEST = 4_000_000
/** The same for a summary. One with a row of 500 long names has 0.2 MB. */
const LONGEST_SUMMARY = 1_000_000
const PORT = 9469
const STRANGER = 'its answer is not HTTP: another program listens there'
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
  Malformed_HTTP_Response: STRANGER,
  InvalidHTTPResponse: STRANGER,
  ResponseHeadersTooLarge: STRANGER,
  InvalidContentLength: STRANGER,
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
  const authorization = token !== undefined && { Authorization: `Bearer ${token}` }
  const headers = { Accept: 'application/json', 'Accept-Encoding': 'gzip', ...authorization }
  const longest = longestOf(new URL(url).pathname)
  try {
    // Bun decompresses without a limit, and writes of what it cannot decompress to stderr.
    const answer = await fetch(url, { signal, redirect: 'manual', headers, decompress: false })
    const bytes = await bytesOf(answer, longest)
    return { status: answer.status, body: bodyText(bytes, answer.headers.get('content-encoding'), longest) }
  } catch (cause) {
    if (signal.aborted) throw cause
    const { code = '', message } = cause as Error & { readonly code?: string }
    throw new Error(REASONS[code] ?? message, { cause })
  }
}

async function bytesOf(answer: Response, longest: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = []
  let length = 0
  for await (const piece of answer.body ?? []) {
    length += piece.length
    if (length > longest) throw tooLong(longest)
    pieces.push(piece)
  }
  return Buffer.concat(pieces)
}

/** The most bytes of an answer at this path, before and after it is decompressed. */
export function longestOf(path: string): number {
  return path.startsWith('/summary') ? LONGEST_SUMMARY : LONGEST
}

/** The error for an answer that is longer. */
export function tooLong(longest: number): Error {
  return new Error(`its answer is longer than ${longest / 1e6} MB`)
}

/** The text of a body by its `Content-Encoding`. Throws Error when it cannot be decompressed, and when it is too long. */
export function bodyText(body: Uint8Array, encoding: string | null | undefined, longest: number): string {
  if (!encoding) return new TextDecoder().decode(body)
  if (encoding !== 'gzip') throw new Error(`its answer has the encoding ${shown(encoding)}: want gzip or none`)
  try {
    return new TextDecoder().decode(gunzipSync(body, { maxOutputLength: longest }))
  } catch (cause) {
    if ((cause as { readonly code?: string }).code === 'ERR_BUFFER_TOO_LARGE') throw tooLong(longest)
    throw new Error('its answer cannot be decompressed', { cause })
  }
}
