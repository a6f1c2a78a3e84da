// The page of a fleet: a server on the operator's machine. The page asks it for the fleet every few seconds.

import {
  compressed,
  foreign,
  isForeign,
  isLocal,
  misdirected,
  packed,
  tagged,
  withHeaders,
} from '../../agent/http/guard.ts'
import { escaped, withoutScript } from '../../agent/page/plain-status.ts'
import { type Asked, listen, plain, type Reply } from '../../lib/os/http.ts'
import type { Fleet } from './fleet.ts'

/** What a link on any other page may open. */
const OPEN: readonly string[] = ['/', '/page.js', '/page.css', '/icon.svg']

/** Where the fleet comes from. */
interface Source {
  fleet(): Fleet
  /** Grows with every answer of an agent. */
  readonly changes: number
}

/** Serves the page of a fleet on a loopback address until stopped. Throws the kernel's error when it cannot listen. */
export function servePage(port: number, source: Source): { stop(): void } {
  let made = { changes: -1, text: '' }
  const fleetText = () => {
    if (made.changes !== source.changes) made = { changes: source.changes, text: JSON.stringify(source.fleet()) }
    return made.text
  }
  const answer = async (asked: Asked): Promise<Reply> => {
    const { method, path, host } = asked
    if (!isLocal(host)) return misdirected(asked)
    if (method !== 'GET') return plain(405, `${method} is not for here: everything is asked with GET`, { Allow: 'GET' })
    if (!OPEN.includes(path) && isForeign(asked)) return foreign(asked)
    return compressed(await routed(asked, source, fleetText), asked)
  }
  return listen({ hostname: '127.0.0.1', port }, async (asked) => withHeaders(await answer(asked)))
}

async function routed(asked: Asked, source: Source, fleetText: () => string): Promise<Reply> {
  if (asked.path === '/fleet') return tagged(fleetText(), 'application/json', asked)
  const { page } = await import('./page.ts')
  switch (asked.path) {
    case '/':
      return tagged(withSentence(page.html, source.fleet()), 'text/html; charset=utf-8', asked)
    case '/page.js':
      return packed(page.js, 'text/javascript; charset=utf-8', asked)
    case '/page.css':
      return packed(page.css, 'text/css; charset=utf-8', asked)
    case '/icon.svg':
      return packed(page.icon, 'image/svg+xml', asked)
    default:
      return plain(404, `there is / and /fleet`)
  }
}

// For a browser that runs no script.
function withSentence(html: string, { sentence }: Fleet): string {
  return withoutScript(html, `<h1>${escaped(sentence)}</h1><p><a href="fleet">The fleet as JSON</a></p>`)
}
