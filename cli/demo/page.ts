import { write } from '../output.ts'
import { must, start } from './exec.ts'
import { expect } from './screen.ts'

/**
 * Starts an HTTP server in a namespace and waits until it listens. With `node` the namespace is on that node of the
 * cluster. Throws Error with the server's stderr when it ends.
 */
export async function serveIn(name: string, node?: string): Promise<void> {
  const server = start([process.execPath, 'demo', '--serve', name], { ns: name, node })
  const first = await server.stdout.getReader().read()
  if (first.done) throw new Error(`The HTTP server in ${name} ended: ${await server.stderr.text()}`)
}

/**
 * Fetches the page of a server from within a pod, or from the node (`host`). Checks the page and the client address
 * that the server saw. Throws Error.
 */
export async function fetchFrom(
  pod: string,
  address: string,
  server: string,
  client: string,
  port = 80,
): Promise<string> {
  const url = `http://${address.includes(':') ? `[${address}]` : address}:${port}/`
  const answer = await must([process.execPath, 'demo', '--fetch', url], { ns: pod })
  expect(`what ${url} answered`, answer, `200 ${pageFor(server, client)}`)
  return `200 ${text(client, server)}`
}

/** Fetches a server's page so many times, each by its own connection. Returns how often each answered. Throws Error. */
export async function fetchMany(pod: string, url: string, count: number): Promise<Record<string, number>> {
  return JSON.parse(await must([process.execPath, 'demo', '--fetch', url, String(count)], { ns: pod }))
}

/** Runs in a pod. Serves the page on port 80 of every address and reports that on stdout. Runs until it is killed. */
export async function servePage([name = '']: readonly string[]): Promise<number> {
  const { port } = Bun.serve({
    hostname: '::',
    port: 80,
    fetch(request, server) {
      // On a socket for both families an IPv4 client has an address such as ::ffff:192.0.2.1.
      const client = server.requestIP(request)?.address.replace(/^::ffff:/, '') ?? 'nobody'
      return new Response(pageFor(name, client), { headers: { 'content-type': 'text/html; charset=utf-8' } })
    },
  })
  write(`listening on ${port}\n`)
  return new Promise(() => {})
}

/**
 * Runs in a pod. Prints the HTTP status and the body of a URL. Waits at most two seconds. With a count, fetches it so
 * often and prints how often each server answered, as JSON.
 */
export async function fetchPage([url = '', count]: readonly string[]): Promise<number> {
  if (count !== undefined) {
    const found: Record<string, number> = {}
    for (let i = 0; i < Number(count); i++) {
      const body = await (
        await fetch(url, { signal: AbortSignal.timeout(2000), keepalive: false, headers: { Connection: 'close' } })
      ).text()
      const name = /<title>(.*?)<\/title>/.exec(body)?.[1] ?? 'nobody'
      found[name] = (found[name] ?? 0) + 1
    }
    write(JSON.stringify(found))
    return 0
  }
  const answer = await fetch(url, { signal: AbortSignal.timeout(2000) })
  write(`${answer.status} ${await answer.text()}`)
  return 0
}

function pageFor(name: string, client: string): string {
  return `<!doctype html><title>${name}</title><p>${text(client, name)}`
}

function text(client: string, name: string): string {
  return `Hello ${client}, this is ${name}`
}
