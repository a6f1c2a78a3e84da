// What keeps a page to itself: who may ask, and what a browser may do with an answer. Used by the agent and by the page
// of a fleet.
import { readFileSync } from 'node:fs'
import { type Asked, plain, type Reply } from '../../lib/os/http.ts'
import { ValueError } from '../../lib/text/errors.ts'

/** These headers allow a page to send requests only to the server that it came from. */
export const HEADERS = {
  'Content-Security-Policy': [
    "default-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "object-src 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Permissions-Policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
  'Cache-Control': 'no-store',
}
/** Shorter answers are not compressed. Characters. */
const COMPRESSED_FROM = 1000
/** Files as they are sent, compressed once, by their tag. */
const files = new Map<string, Uint8Array>()

/** Adds the headers. */
export function withHeaders(reply: Reply): Reply {
  return { ...reply, headers: { ...HEADERS, ...reply.headers } }
}

/** Whether a client takes gzip, by its header `Accept-Encoding`. */
export function acceptsGzip(header = ''): boolean {
  return header.split(',').some((one) => /^\s*(gzip|\*)\s*(;\s*q=(?!0(\.0*)?\s*$).*)?$/i.test(one))
}

/** Compresses a long answer for who takes that. */
export function compressed(reply: Reply, { header }: Pick<Asked, 'header'>): Reply {
  const { body, headers } = reply
  if (typeof body !== 'string' || body.length < COMPRESSED_FROM) return reply
  const varying = { ...headers, Vary: 'Accept-Encoding' }
  if (!acceptsGzip(header('accept-encoding'))) return { ...reply, headers: varying }
  return { ...reply, headers: { ...varying, 'Content-Encoding': 'gzip' }, body: Bun.gzipSync(body, { level: 1 }) }
}

/** A text with a tag. A client that has it already gets 304. */
export function tagged(body: string, type: string, { header }: Pick<Asked, 'header'>): Reply {
  const tag = `"${Bun.hash(body).toString(36)}"`
  const headers = { ETag: tag, 'Cache-Control': 'no-cache', Vary: 'Accept-Encoding' }
  const isKnown = header('if-none-match') === tag
  return { status: isKnown ? 304 : 200, type, headers, body: isKnown ? '' : body }
}

/** The same for a file that never changes: it is compressed once and well. */
export function packed(body: string, type: string, asked: Pick<Asked, 'header'>): Reply {
  const reply = tagged(body, type, asked)
  if (reply.status === 304 || !acceptsGzip(asked.header('accept-encoding'))) return reply
  const { headers = {} } = reply
  const tag = headers['ETag'] as string
  const small = files.get(tag) ?? Bun.gzipSync(body, { level: 9 })
  files.set(tag, small)
  return { ...reply, headers: { ...headers, 'Content-Encoding': 'gzip' }, body: small }
}

/** Whether an address that a server listens on is of this machine alone. */
export function isLoopback(address: string): boolean {
  return /^(127\.|::1$|localhost$)/.test(address)
}

/**
 * Whether a `Host` header names this machine. Protects against DNS rebinding: a foreign page can point its host name at
 * 127.0.0.1 and read the answers.
 */
export function isLocal(host: string): boolean {
  return host === '' || /^(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/i.test(host)
}

/** Refuses a request under a foreign name. */
export function misdirected({ host }: Pick<Asked, 'host'>): Reply {
  const text = `this is asked as 127.0.0.1 or localhost, not as ${JSON.stringify(host)}`
  return plain(421, `${text}; the agent can listen on another address`, HEADERS)
}

/**
 * Whether a page of another origin asks. It cannot read the answer, and it must not cause work either. Programs send
 * neither header.
 */
export function isForeign({ host, header }: Pick<Asked, 'host' | 'header'>): boolean {
  const [site, origin] = [header('sec-fetch-site'), header('origin')]
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return true
  return origin !== undefined && origin.replace(/^https?:\/\//, '') !== host
}

/** Refuses such a request. */
export function foreign({ path, header }: Pick<Asked, 'path' | 'header'>): Reply {
  const from = header('origin') ?? 'another site'
  return plain(403, `${path} is not for pages of ${JSON.stringify(from)}: open the page of this agent`)
}

/** The fewest characters of a token. */
const LENGTH = 16

/** Reads the token for the status server from a file: one word. Throws ValueError, which does not show it. */
export function readToken(file: string): string {
  const token = textOf(file).trim()
  if (token.length >= LENGTH && /^[!-~]+$/.test(token)) return token
  throw new ValueError(`Cannot use the token in ${file}: want one word of at least ${LENGTH} characters`)
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new ValueError(`Cannot read the token: ${(cause as Error).message}`)
  }
}
