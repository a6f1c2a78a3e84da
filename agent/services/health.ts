import { existsSync } from 'node:fs'
import { listen, plain, type Reply } from '../../lib/os/http.ts'
import { refused } from '../node/socket.ts'
import type { CompiledService } from './compile.ts'

/**
 * Objects that wait longer than this for the kernel make the proxy unhealthy, in milliseconds (kube-proxy: twice its
 * period of 30 s).
 */
const LATE_MS = 60_000

/** Whether the kernel keeps up with the objects (kube-proxy's rule, pkg/proxy/healthcheck/proxy_health.go). */
export class Progress {
  readonly #clock: () => number
  #updated: number | undefined
  #waitingSince: number | undefined

  /** `clock` gives milliseconds. */
  constructor(clock: () => number = Date.now) {
    this.#clock = clock
  }

  /** Notes that objects changed. */
  changed(): void {
    this.#waitingSince ??= this.#clock()
  }

  /** Does the work that takes all changes so far to the kernel. When it throws, they still wait. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const since = this.#waitingSince
    this.#waitingSince = undefined
    try {
      const result = await work()
      this.#updated = this.#clock()
      return result
    } catch (cause) {
      this.#waitingSince = since ?? this.#clock()
      throw cause
    }
  }

  /** When all changes were in the kernel last. kube-proxy gives the current time as long as it is healthy. */
  get lastUpdated(): Date {
    return new Date(this.isHealthy ? this.#clock() : (this.#updated ?? 0))
  }

  /** Everything was loaded once, and no change waits for longer than a minute. */
  get isHealthy(): boolean {
    const since = this.#waitingSince
    return this.#updated !== undefined && (since === undefined || this.#clock() - since < LATE_MS)
  }
}

/** Something that listens on a port. */
interface Server {
  stop(): void
}
/** What load balancers want to know of one Service: its name, and its ready endpoints on this node. */
interface Endpoints {
  readonly service: string
  readonly local: number
}

/**
 * The servers for load balancers, with kube-proxy's answers (pkg/proxy/healthcheck). One port is for the node:
 * `/healthz` for traffic to Services with `externalTrafficPolicy: Cluster`. Each healthCheckNodePort is for one Service
 * with policy Local. Answers are 200 or 503.
 */
export class HealthServers {
  readonly #servers = new Map<number, Server>()
  readonly #endpoints = new Map<number, Endpoints>()
  readonly #address: { readonly host: string; readonly port: number } | undefined
  readonly #progress: Progress
  readonly #isLeaving: () => boolean
  #node: Server | undefined

  /**
   * `address` is for the node's answer. Undefined for none. `isLeaving` tells that the node goes soon, and wants no new
   * connections.
   */
  constructor(
    address: { readonly host: string; readonly port: number } | undefined,
    progress: Progress,
    isLeaving: () => boolean,
  ) {
    this.#address = address
    this.#progress = progress
    this.#isLeaving = isLeaving
  }

  /**
   * Starts, changes and ends servers. Gives one sentence per port that cannot be opened. The next call tries it again.
   */
  update(services: ReadonlyMap<string, NonNullable<CompiledService['health']>>): string[] {
    const wanted = new Map([...services].map(([service, { port, local }]) => [port, { service, local }]))
    for (const [port, server] of this.#servers) {
      if (wanted.has(port)) continue
      server.stop()
      this.#servers.delete(port)
    }
    this.#endpoints.clear()
    for (const [port, endpoints] of wanted) this.#endpoints.set(port, endpoints)
    const failures: string[] = []
    const open = (what: string, start: () => void) => {
      try {
        start()
      } catch (cause) {
        failures.push(refused(what, cause).message)
      }
    }
    for (const [port, { service }] of wanted) {
      if (this.#servers.has(port)) continue
      open(`healthCheckNodePort ${port} of Service ${service}`, () => {
        const server = serve('::', port, () => this.#ofService(port))
        this.#servers.set(port, server)
      })
    }
    const address = this.#address
    if (address && !this.#node)
      open(`--service-health-address ${address.host} port ${address.port}`, () => {
        this.#node = serve(address.host, address.port, (path) => this.#ofNode(path))
      })
    return failures
  }

  /** Ends all servers. */
  close(): void {
    for (const server of this.#servers.values()) server.stop()
    this.#servers.clear()
    this.#node?.stop()
    this.#node = undefined
  }

  #ofService(port: number): Reply {
    const { service, local } = this.#endpoints.get(port) as Endpoints
    const [namespace, name] = service.split('/')
    const { isHealthy } = this.#progress
    const body = { service: { namespace, name }, localEndpoints: local, serviceProxyHealthy: isHealthy }
    return json(local > 0 && isHealthy, body, { 'X-Load-Balancing-Endpoint-Weight': String(local) })
  }

  // `/livez` is for probes of the program: a node that leaves is no reason to start it again.
  #ofNode(path: string): Reply {
    if (path !== '/healthz' && path !== '/livez')
      return plain(404, `There is no ${path}, only /healthz and /livez`, HEADERS)
    const [{ isHealthy, lastUpdated }, isEligible] = [this.#progress, path === '/livez' || !this.#isLeaving()]
    const body = {
      lastUpdated,
      currentTime: new Date(),
      ...(path === '/healthz' && { nodeEligible: isEligible }),
      healthy: isHealthy,
    }
    return json(isHealthy && isEligible, body)
  }
}

const HEADERS = { 'X-Content-Type-Options': 'nosniff' }

function json(isGood: boolean, body: object, more: Readonly<Record<string, string>> = {}): Reply {
  const headers = { ...HEADERS, ...more }
  return { status: isGood ? 200 : 503, type: 'application/json', headers, body: JSON.stringify(body) }
}

// Every client of the network gets an answer, whatever its method and its `Host`: load balancers ask in old ways.
function serve(host: string, port: number, answer: (path: string) => Reply): Server {
  // `::` is all addresses of both families. A kernel without IPv6 does not know it.
  const hostname = host === '::' && !existsSync('/proc/net/if_inet6') ? '0.0.0.0' : host
  return listen({ hostname, port }, ({ path }) => answer(path))
}
