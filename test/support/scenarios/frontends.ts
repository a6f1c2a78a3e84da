// What the maps of Services say to a client, read from the elements alone as the kernel does it: frontend, chain, slots,
// endpoints.
import type { Elements } from '../../../agent/kernel/elements.ts'
import { chainName } from '../../../agent/services/compile.ts'
import type { WantedElements } from '../../../agent/services/wanted-elements.ts'

const CHAIN = /^goto (vip|port)([46])_([a-z]+)_(\d+)(?:_l(\d+))?(?:_s(\d+))?(_m)?$/
const LOCAL_SLOT = 65_536

/**
 * A line for each frontend: `10.96.0.1:80/TCP -> 10.1.0.2:8080`, and for each health check. Throws RangeError for an
 * element that leads nowhere, and for one that nothing leads to.
 */
export function frontendsIn(elements: Elements, wanted: WantedElements): string[] {
  const reading = new Reading(elements, wanted)
  const lines = ['vip', 'port'].flatMap((kind) => ['4', '6'].flatMap((family) => reading.linesOf(kind, family)))
  reading.expectAllUsed()
  const health = [...wanted.health].map(([service, { port, local }]) => {
    const count = `${local} ready ${local === 1 ? 'endpoint' : 'endpoints'} here`
    return `health check port ${port} of ${service}: ${count}`
  })
  return [...lines.sort(), ...health.sort()]
}

class Reading {
  readonly #elements: Elements
  readonly #chains: ReadonlySet<string>
  readonly #sources: ReadonlyMap<string, readonly string[]>
  readonly #used = new Set<string>()

  constructor(elements: Elements, wanted: WantedElements) {
    this.#elements = elements
    this.#chains = new Set(wanted.shapes().map((shape) => `goto ${chainName(shape)}`))
    this.#sources = wanted.sources()
  }

  linesOf(kind: string, family: string): string[] {
    const own = kind === 'vip' ? '' : 'port'
    const refused = [...this.#elements.wanted(`${own}none${family}`).keys()]
    const served = [...this.#elements.wanted(`${own}svc${family}`)]
    return [
      ...refused.map((key) => `${placeOf(key, family)}: refused`),
      ...served.map(([key, verdict]) => [...this.#served(key, family, verdict), ...this.#limits(key)].join('; ')),
    ]
  }

  /** Throws RangeError for an endpoint that no frontend leads to. */
  expectAllUsed(): void {
    for (const set of this.#elements.names().filter((name) => /^(port)?(eps|tok|sel)/.test(name)))
      for (const key of this.#elements.wanted(set).keys())
        if (!this.#used.has(`${set} ${key}`)) throw new RangeError(`No frontend leads to the element ${set} { ${key} }`)
  }

  #served(key: string, family: string, verdict: string): string[] {
    const place = placeOf(key, family)
    if (verdict === 'drop') return [`${place}: dropped`]
    const [, kind, , protocol = '', count, local, seconds, isMasked] = CHAIN.exec(verdict) ?? []
    if (!this.#chains.has(verdict)) throw new RangeError(`There is no chain for ${key}: ${verdict}`)
    const slots = (first: number, many: string) =>
      Array.from({ length: Number(many) }, (_, i) => this.#endpoint(kind, family, protocol, key, first + i, seconds))
    const outside = local === undefined ? [] : slots(LOCAL_SLOT, local)
    return [
      `${place} -> ${slots(0, count as string).join(', ')}`,
      ...(local === undefined ? [] : [`from outside ${outside.join(', ') || 'dropped'}`]),
      ...(seconds === undefined ? [] : [`affinity ${seconds} s`]),
      ...(isMasked ? ['masqueraded'] : []),
    ]
  }

  #limits(key: string): string[] {
    const ranges = this.#sources.get(key)
    return ranges ? [`only from ${ranges.join(', ')}`] : []
  }

  // With affinity a slot gives a token, and the token the endpoint.
  #endpoint(
    kind: string | undefined,
    family: string,
    protocol: string,
    key: string,
    slot: number,
    sticky: string | undefined,
  ): string {
    const own = kind === 'vip' ? '' : 'port'
    const place = `${key.replace(`${protocol} . `, '')} . ${slot}`
    if (sticky === undefined) return addressOf(this.#look(`${own}eps${family}${protocol}`, place))
    const token = this.#look(`${own}tok${family}${protocol}`, place)
    return addressOf(this.#look(`${own}sel${family}`, `${key} . ${token}`))
  }

  #look(set: string, key: string): string {
    const value = this.#elements.wanted(set).get(key)
    if (value === undefined) throw new RangeError(`There is no element ${set} { ${key} }`)
    this.#used.add(`${set} ${key}`)
    return value
  }
}

// `10.96.0.1 . tcp . 80`, or `tcp . 30080`.
function placeOf(key: string, family: string): string {
  const [port, protocol = '', ip] = key.split(' . ').reverse()
  const at = `${port}/${protocol.toUpperCase()}`
  if (ip === undefined) return `node port ${at} of IPv${family}`
  return `${ip.includes(':') ? `[${ip}]` : ip}:${at}`
}

// `10.1.0.2 . 8080`.
function addressOf(text: string): string {
  const [ip = '', port] = text.split(' . ')
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`
}
