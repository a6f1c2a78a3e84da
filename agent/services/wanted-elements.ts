import type { Cidr } from '../../lib/text/ip.ts'
import type { Elements } from '../kernel/elements.ts'
import {
  type ChainShape,
  type CompiledService,
  chainName,
  elementsOf,
  type Frontend,
  isSame,
  NOTHING,
} from './compile.ts'

/**
 * The elements of all Services, and which Service owns each frontend. A change of a Service touches its own elements.
 */
export class WantedElements {
  readonly #elements: Pick<Elements, 'put' | 'remove'>
  readonly #compiled = new Map<string, CompiledService>()
  /** The Services that claim a frontend, such as an external IP that two of them name. The first one has it. */
  readonly #claims = new Map<string, string[]>()
  readonly #served = new Map<string, Frontend>()
  /** How many Services need an element of a set, and how many frontends a chain. */
  readonly #uses = new Map<string, number>()
  readonly #shapes = new Map<string, { readonly shape: ChainShape; count: number }>()
  /** The Services with frontends that only some sources may use. */
  readonly #restricted = new Set<string>()
  #sourcesVersion = 0
  /** The health checks, by Service. */
  readonly health = new Map<string, NonNullable<CompiledService['health']>>()

  constructor(elements: Pick<Elements, 'put' | 'remove'>) {
    this.#elements = elements
  }

  /** The frontends in the wanted elements, by kind, family and key. */
  get served(): ReadonlyMap<string, Frontend> {
    return this.#served
  }

  /** The result for a Service, by `namespace/name`. */
  of(service: string): CompiledService | undefined {
    return this.#compiled.get(service)
  }

  /** All Services. */
  get all(): ReadonlyMap<string, CompiledService> {
    return this.#compiled
  }

  /** Differs after each change of `sources`. */
  get sourcesVersion(): number {
    return this.#sourcesVersion
  }

  /**
   * The frontends that only some sources may use, by address, protocol and port. The Service that has a frontend
   * decides about its sources.
   */
  sources(): Map<string, readonly Cidr[]> {
    const isOwner = (service: string, key: string) => {
      const family = key.split(' ', 1)[0]?.includes(':') ? 6 : 4
      return this.#claims.get(`vip${family} ${key}`)?.[0] === service
    }
    const own = [...this.#restricted].flatMap((service) => {
      const { restricted } = this.#compiled.get(service) ?? NOTHING
      return [...restricted].filter(([key]) => isOwner(service, key))
    })
    return new Map(own)
  }

  /** The chains that the wanted elements lead to. */
  shapes(): ChainShape[] {
    return [...this.#shapes.values()].map(({ shape }) => shape)
  }

  /**
   * Takes the new results of some Services, undefined for those that are gone. Gives the frontends that changed, with
   * their state before and now. An address may move from one Service to another within one call.
   */
  update(
    changes: ReadonlyMap<string, CompiledService | undefined>,
  ): Map<string, { readonly before: Frontend | undefined; readonly now: Frontend | undefined }> {
    const touched = new Set<string>()
    for (const [service, next = NOTHING] of changes) {
      const before = this.#compiled.get(service) ?? NOTHING
      for (const [name, frontend] of before.frontends) {
        const now = next.frontends.get(name)
        if (now && isSame(frontend, now)) continue
        touched.add(name)
        if (!now) this.#unclaim(name, service)
      }
      for (const name of next.frontends.keys()) {
        if (before.frontends.has(name)) continue
        touched.add(name)
        this.#claims.set(name, [...(this.#claims.get(name) ?? []), service])
      }
      for (const [set, key] of shared(before)) this.#count(set, key, -1)
      for (const [set, key] of shared(next)) this.#count(set, key, 1)
      if (!isEqual(before.restricted, next.restricted)) this.#sourcesVersion++
      if (next.restricted.size > 0) this.#restricted.add(service)
      else this.#restricted.delete(service)
      if (next.health) this.health.set(service, next.health)
      else this.health.delete(service)
      if (next === NOTHING) this.#compiled.delete(service)
      else this.#compiled.set(service, next)
    }
    const changed = new Map<string, { before: Frontend | undefined; now: Frontend | undefined }>()
    for (const name of touched) {
      const [owner = ''] = this.#claims.get(name) ?? []
      const [before, now] = [this.#served.get(name), this.#compiled.get(owner)?.frontends.get(name)]
      if (before && now && isSame(before, now)) continue
      if (before) {
        const wanted = new Set(now ? [...elementsOf(now)].map(([set, key]) => `${set} ${key}`) : [])
        for (const [set, key] of elementsOf(before)) if (!wanted.has(`${set} ${key}`)) this.#elements.remove(set, key)
      }
      for (const [set, key, value] of now ? elementsOf(now) : []) this.#elements.put(set, key, value)
      if (typeof before?.answer === 'object') this.#countChain(before.answer, -1)
      if (typeof now?.answer === 'object') this.#countChain(now.answer, 1)
      if (now) this.#served.set(name, now)
      else this.#served.delete(name)
      changed.set(name, { before, now })
    }
    return changed
  }

  #unclaim(name: string, service: string): void {
    const left = (this.#claims.get(name) ?? []).filter((one) => one !== service)
    if (left.length > 0) this.#claims.set(name, left)
    else this.#claims.delete(name)
    // Another Service has the frontend now, with its own sources.
    if (left.length > 0 && this.#restricted.size > 0) this.#sourcesVersion++
  }

  #countChain(shape: ChainShape, change: 1 | -1): void {
    const name = chainName(shape)
    const count = (this.#shapes.get(name)?.count ?? 0) + change
    if (count > 0) this.#shapes.set(name, { shape, count })
    else this.#shapes.delete(name)
  }

  #count(set: string, key: string, change: 1 | -1): void {
    const name = `${set} ${key}`
    const uses = (this.#uses.get(name) ?? 0) + change
    if (uses > 0) this.#uses.set(name, uses)
    else this.#uses.delete(name)
    if (uses > 0) this.#elements.put(set, key)
    else this.#elements.remove(set, key)
  }
}

function isEqual(one: CompiledService['restricted'], other: CompiledService['restricted']): boolean {
  return (one.size === 0 && other.size === 0) || Bun.deepEquals([...one], [...other])
}

// The elements that several Services may need.
function shared({ vips, hairpins }: CompiledService): (readonly [set: string, key: string])[] {
  const family = (ip: string) => (ip.includes(':') ? 6 : 4)
  return [
    ...vips.map((ip) => [`vips${family(ip)}`, ip] as const),
    ...hairpins.map((ip) => [`hairpin${family(ip)}`, `${ip} . ${ip}`] as const),
  ]
}
