import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Failure } from '../scheduler/failures.ts'
import type { Frontend } from './compile.ts'

const LOOPBACK = '::1'

/** The most connections at once, over all ports. Each takes two files of the agent. */
const MOST = 1000

/** A server on `::1`, and the endpoints that it leads to. */
interface Port {
  readonly server: Server
  readonly sockets: Set<Socket>
  frontend: Frontend
  failure?: string
}

/**
 * NodePorts on `::1`, TCP alone. The kernel does not route packets from `::1`, and has no `route_localnet` for IPv6. So
 * the agent listens there, and passes on what it reads. Upstream does the same for both families (feature
 * LocalhostNodePorts). Connections end with the agent.
 */
export class LoopbackPorts {
  readonly #ports = new Map<number, Port>()
  #connections = 0
  readonly #most: number
  readonly #report: (failures: readonly Failure[]) => void

  /** `report` gets all failures, each time they change. `most` is the number of connections at once. */
  constructor(report: (failures: readonly Failure[]) => void, most = MOST) {
    this.#report = report
    this.#most = most
  }

  /**
   * Opens and closes ports, so that they are those of the frontends. A port that could not be opened is tried again.
   */
  update(frontends: Iterable<Frontend>): void {
    const isServed = ({ kind, family, protocol, cluster }: Frontend) =>
      kind === 'port' && family === 6 && protocol === 'tcp' && cluster.length > 0
    const served = [...frontends].filter(isServed)
    const wanted = new Map(served.map((one) => [Number(one.key.split(' . ')[1]), one]))
    for (const port of [...this.#ports.keys()]) if (!wanted.has(port)) this.#close(port)
    for (const [port, frontend] of wanted) {
      const open = this.#ports.get(port)
      if (open) open.frontend = frontend
      if (open?.failure !== undefined) this.#close(port)
      if (!open || open.failure !== undefined) this.#open(port, frontend, open?.failure)
    }
    this.#publish()
  }

  /** Closes all ports, and ends their connections. */
  close(): void {
    for (const port of [...this.#ports.keys()]) this.#close(port)
  }

  // A failure stands until the port is open.
  #open(port: number, frontend: Frontend, failure?: string): void {
    const sockets = new Set<Socket>()
    const server = createServer({ allowHalfOpen: true }, (client) => {
      if (this.#connections >= this.#most) return void client.destroy()
      this.#connections++
      client.on('close', () => this.#connections--)
      const { host, port: to } = chosen(open.frontend)
      const endpoint = connect({ host, port: to, allowHalfOpen: true })
      for (const [one, other] of [
        [client, endpoint],
        [endpoint, client],
      ] as const) {
        sockets.add(one)
        one.on('close', () => sockets.delete(one)).on('error', () => other.resetAndDestroy())
        one.pipe(other)
      }
    })
    const open: Port = { server, sockets, frontend, ...(failure !== undefined && { failure }) }
    this.#ports.set(port, open)
    server.on('error', ({ message }) => {
      open.failure = message
      this.#publish()
    })
    server.on('listening', () => {
      delete open.failure
      this.#publish()
    })
    server.listen({ host: LOOPBACK, port })
  }

  #close(port: number): void {
    const { server, sockets } = this.#ports.get(port) as Port
    this.#ports.delete(port)
    server.close(() => {})
    for (const one of sockets) one.destroy()
  }

  #publish(): void {
    const failures = [...this.#ports].flatMap(([port, { failure }]): Failure[] => {
      if (failure === undefined) return []
      return [{ scope: 'part', text: `Cannot open NodePort ${port} on ${LOOPBACK}: ${failure}` }]
    })
    this.#report(failures)
  }
}

// All clients of ::1 are one client: with session affinity they have one endpoint.
function chosen({ answer, cluster }: Frontend): { readonly host: string; readonly port: number } {
  const isSticky = typeof answer === 'object' && answer.sticky !== undefined
  const [host = '', port] = (cluster[isSticky ? 0 : Math.floor(Math.random() * cluster.length)] as string).split(' . ')
  return { host, port: Number(port) }
}
