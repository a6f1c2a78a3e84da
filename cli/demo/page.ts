import { write } from '../output.ts'
import { must, start } from './exec.ts'
import { expect } from './screen.ts'

/** Starts an HTTP server in a namespace and waits until it listens. Throws Error with its last words when it does not. */
export async function serveIn(name: string): Promise<void> {
  const server = start([process.execPath, 'demo', '--serve', name], { ns: name })
  const first = await server.stdout.getReader().read()
  if (first.done) throw new Error(`The HTTP server in ${name} ended: ${await server.stderr.text()}`)
}

/** Fetches the page of a server from within a pod, or from the node (`host`), and sees that it is its page and whom it takes the pod for. Throws Error. */
export async function fetchFrom(pod: string, address: string, server: string, client: string, port = 80): Promise<string> {
  const url = `http://${address.includes(':') ? `[${address}]` : address}:${port}/`
  const answer = await must([process.execPath, 'demo', '--fetch', url], { ns: pod })
  expect(`what ${url} answered`, answer, `200 ${pageFor(server, client)}`)
  return `200 ${text(client, server)}`
}

/** Runs in a pod: serves the page on port 80 of every address, says so on stdout, and goes on until it is killed. */
export async function servePage([name = '']: readonly string[]): Promise<number> {
  const { port } = Bun.serve({
    hostname: '::',
    port: 80,
    fetch(request, server) {
      // An IPv4 client of a socket for both families.
      const client = server.requestIP(request)?.address.replace(/^::ffff:/, '') ?? 'nobody'
      return new Response(pageFor(name, client), { headers: { 'content-type': 'text/html; charset=utf-8' } })
    },
  })
  write(`listening on ${port}\n`)
  return new Promise(() => {})
}

/** Runs in a pod: prints the HTTP status and the body that a URL gives within two seconds. */
export async function fetchPage([url = '']: readonly string[]): Promise<number> {
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
