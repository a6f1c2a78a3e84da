import { type Connection, connectionPieces, forget, type Sought } from '../../lib/os/conntrack.ts'
import { log } from '../../lib/os/log.ts'
import { localAddresses } from '../../lib/os/routes.ts'
import { contains } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { pauses } from '../kernel/pauses.ts'
import type { Family, Frontend } from './compile.ts'
import type { FrontendChange } from './wanted-elements.ts'

// The kernel translates a UDP client as long as it sends, and never looks at the rules again. So a client that began
// before an endpoint went, or before the first one came, would never reach another one. TCP and SCTP clients notice by
// themselves that their endpoint is gone.

/** A UDP frontend whose clients may be on a wrong way. */
export interface StaleFrontend extends Pick<Frontend, 'kind' | 'family' | 'key'> {
  /** The endpoints that clients may go on to. */
  readonly endpoints: ReadonlySet<string>
  /** Those for clients from outside, where they have others: externalTrafficPolicy Local. */
  readonly outside?: ReadonlySet<string>
}

/**
 * UDP frontends that have to be looked at. There is one of each, however often steps fail: a later state takes the
 * place of an earlier one.
 */
export class StaleFrontends {
  #all = new Map<string, StaleFrontend>()

  get size(): number {
    return this.#all.size
  }

  note(stale: Iterable<StaleFrontend>): void {
    for (const one of stale) this.#all.set(nameOf(one), one)
  }

  /** Gives all, and has none any more. */
  take(): StaleFrontend[] {
    const all = [...this.#all.values()]
    this.#all = new Map()
    return all
  }

  /** Takes back what was not looked at. States that came meanwhile stay. */
  giveBack(stale: Iterable<StaleFrontend>): void {
    const later = this.take()
    this.note(stale)
    this.note(later)
  }
}

function nameOf({ kind, family, key }: StaleFrontend): string {
  return `${kind}${family} ${key}`
}

/** The UDP frontends among changed ones with clients to look at: an endpoint went, the first one came, or all went. */
export function staleOf(changed: Iterable<FrontendChange>): StaleFrontend[] {
  return [...changed].flatMap(({ before, now }) => {
    const one = now ?? before
    if (!one?.key.includes('udp . ')) return []
    const [had, has] = [endpointsOf(before), endpointsOf(now)]
    const isSame = staysOn(had.endpoints, has.endpoints) && staysOn(outsideOf(had), outsideOf(has))
    return isSame ? [] : [{ kind: one.kind, family: one.family, key: one.key, ...has }]
  })
}

// Whether the clients of the first endpoints may all go on as they are.
function staysOn(had: ReadonlySet<string>, has: ReadonlySet<string>): boolean {
  if (had.size === 0) return has.size === 0
  return [...had].every((endpoint) => has.has(endpoint))
}

function outsideOf({ endpoints, outside }: Pick<StaleFrontend, 'endpoints' | 'outside'>): ReadonlySet<string> {
  return outside ?? endpoints
}

/** All UDP frontends, for the first look after a start. */
export function allUdp(frontends: Iterable<Frontend>): StaleFrontend[] {
  const udp = [...frontends].filter(({ key }) => key.includes('udp . '))
  return udp.map((one) => ({ kind: one.kind, family: one.family, key: one.key, ...endpointsOf(one) }))
}

/**
 * The UDP frontends of an earlier run that nobody serves any more. `elements` are what that run left, as `Elements`
 * names them: `map svc4: 10.96.0.1 . udp . 53`. `served` has the frontends of now, by kind, family and key.
 */
export function formerUdp(elements: readonly string[], served: ReadonlyMap<string, Frontend>): StaleFrontend[] {
  return elements.flatMap((title) => {
    const [, port, family, key = ''] = /^map (port)?svc([46]): (.*udp \. .*)$/.exec(title) ?? []
    const kind = port ? 'port' : 'vip'
    if (key === '' || served.has(`${kind}${family} ${key}`)) return []
    return [{ kind, family: family === '4' ? 4 : 6, key, endpoints: new Set<string>() }]
  })
}

const UDP = 17
/** For more frontends than this, one list of all UDP connections is cheaper than one list for each. */
const SINGLY = 16

/**
 * Makes the kernel forget UDP connections to these frontends that do not lead to one of their endpoints. The kernel
 * lists only those to the frontends. Works in turns with the agent's other work. Gives the number of deleted
 * connections. Throws Error when the kernel refuses. `inside` are the networks of pods: their clients, and those of the
 * node, are not from outside. `list` gives the connections.
 */
export async function forgetStale(
  frontends: readonly StaleFrontend[],
  inside: readonly Cidr[],
  list: (sought: Sought) => Iterable<Connection[]> = connectionPieces,
): Promise<number> {
  let count = 0
  const pause = pauses()
  for (const family of [4, 6] as const) {
    const own = frontends.filter((one) => one.family === family)
    for (const sought of soughtOf(family, own)) {
      const isStale = staleBy(own, inside, () => localAddresses(family))
      for (const piece of list(sought)) {
        count += forget(piece.filter(isStale))
        await pause()
      }
    }
  }
  return count
}

/** The connections that are forgotten, in words. */
const STALE = 'UDP connections to former endpoints of Services'

/** The connections to former endpoints, which go beside the steps: cleaning never delays programming. */
export class StaleConnections {
  readonly #frontends = new StaleFrontends()
  #isWorking = false

  /** Notes UDP frontends whose connections have to be looked at. */
  note(stale: Iterable<StaleFrontend>): void {
    this.#frontends.note(stale)
  }

  /**
   * Looks at all that was noted, also meanwhile. A second call at the same time does nothing. `inside` gives the
   * networks of pods, and `forgot` gets the number of connections of each look. Throws Error when the kernel refuses.
   * What was not looked at then waits for the next call.
   */
  async forget(inside: () => readonly Cidr[], forgot: (count: number) => void): Promise<void> {
    if (this.#isWorking) return
    this.#isWorking = true
    try {
      while (this.#frontends.size > 0) {
        const stale = this.#frontends.take()
        const count = await forgetStale(stale, inside()).catch((cause: unknown) => {
          this.#frontends.giveBack(stale)
          throw new Error(`Cannot forget ${STALE}: ${(cause as Error).message}`, { cause })
        })
        if (count > 0) log(`agent: forgot ${count} ${STALE}`)
        forgot(count)
      }
    } finally {
      this.#isWorking = false
    }
  }
}

// `10.96.0.1 . udp . 53` of a Service's address, and `udp . 30053` of a node's port.
function soughtOf(family: Family, frontends: readonly StaleFrontend[]): Sought[] {
  if (frontends.length > SINGLY) return [{ family, protocol: UDP }]
  return frontends.map(({ kind, key }) => {
    const parts = key.split(' . ')
    return { family, protocol: UDP, dport: Number(parts.at(-1)), ...(kind === 'vip' && { dst: parts[0] as Ip }) }
  })
}

/**
 * Tells of a UDP connection whether it leads elsewhere than to the endpoints of its frontend. `local` gives the
 * addresses of the node.
 */
export function staleBy(
  frontends: readonly StaleFrontend[],
  inside: readonly Cidr[],
  local: () => ReadonlySet<string>,
): (one: Pick<Connection, 'there' | 'back'>) => boolean {
  const vips = new Map(frontends.filter(({ kind }) => kind === 'vip').map((one) => [one.key, one]))
  const ports = new Map(frontends.filter(({ kind }) => kind === 'port').map((one) => [one.key, one]))
  let own: ReadonlySet<string> | undefined
  const isLocal = (ip: string) => {
    own ??= local()
    return own.has(ip) || ip.startsWith('127.')
  }
  const isInside = (ip: Ip) => isLocal(ip) || inside.some((network) => contains(network, ip))
  return ({ there: { src, dst, dport }, back }) => {
    const port = ports.get(`udp . ${dport}`)
    const frontend = vips.get(`${dst} . udp . ${dport}`) ?? (port && isLocal(dst) ? port : undefined)
    if (frontend === undefined) return false
    const { endpoints, outside } = frontend
    const endpoint = `${back.src} . ${back.sport}`
    if (!endpoints.has(endpoint)) return true
    return outside !== undefined && !outside.has(endpoint) && !isInside(src)
  }
}

// As for TCP, a client stays with an endpoint that serves, also when new clients get others.
function endpointsOf(frontend: Frontend | undefined): Pick<StaleFrontend, 'endpoints' | 'outside'> {
  if (!frontend) return { endpoints: new Set() }
  const { answer, lasting, lastingLocal } = frontend
  const isSplit = typeof answer === 'object' && answer.local !== undefined
  return { endpoints: new Set(lasting), ...(isSplit && { outside: new Set(lastingLocal) }) }
}
