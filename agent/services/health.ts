import type { CompiledService } from './compile.ts'

/** A running server of healthCheckNodePort. */
interface Server {
  readonly port: number
  told: { readonly service: string; readonly local: number }
  stop(): void
}

/**
 * The servers of healthCheckNodePort: load balancers ask them whether this node has endpoints of a Service. They answer 200 or 503, and the number of local
 * endpoints as JSON in kube-proxy's form (pkg/proxy/healthcheck).
 */
export class HealthServers {
  readonly #servers = new Map<number, Server>()

  /** Starts, changes and ends servers. Gives one sentence per port that cannot be opened. */
  update(services: ReadonlyMap<string, NonNullable<CompiledService['health']>>): string[] {
    const wanted = new Map([...services].map(([service, { port, local }]) => [port, { service, local }]))
    for (const [port, server] of this.#servers) if (!wanted.has(port)) this.#end(port, server)
    const failures: string[] = []
    for (const [port, told] of wanted) {
      const server = this.#servers.get(port)
      if (server) server.told = told
      else
        try {
          this.#servers.set(port, serve(port, told))
        } catch (cause) {
          failures.push(`Cannot open healthCheckNodePort ${port} of Service ${told.service}: ${(cause as Error).message}`)
        }
    }
    return failures
  }

  /** Ends all servers. */
  close(): void {
    for (const [port, server] of this.#servers) this.#end(port, server)
  }

  #end(port: number, server: Server): void {
    server.stop()
    this.#servers.delete(port)
  }
}

function serve(port: number, told: Server['told']): Server {
  const state = { port, told, stop: () => {} }
  const server = Bun.serve({
    hostname: '::',
    port,
    fetch: () => {
      const { service, local } = state.told
      const [namespace, name] = service.split('/')
      return Response.json({ service: { namespace, name }, localEndpoints: local, serviceProxyHealthy: true }, { status: local > 0 ? 200 : 503, headers: { 'X-Load-Balancing-Endpoint-Weight': String(local) } })
    },
  })
  state.stop = () => void server.stop(true)
  return state
}
