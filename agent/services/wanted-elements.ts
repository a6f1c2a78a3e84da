import type { Cidr, Ip } from '../../lib/text/ip.ts'
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

/** An address and port that a Service names and another one has. */
export interface Conflict {
  /** The frontend: kind, family and key. */
  readonly name: string
  /** The Service that does not have it, by `namespace/name`. */
  readonly loser: string
  /** Who has it, and why, in one sentence. */
  readonly text: string
}

/** A frontend that changed: its state before and now. Undefined where there is none. */
export interface FrontendChange {
  readonly before: Frontend | undefined
  readonly now: Frontend | undefined
}
/** Frontends that changed, by kind, family and key. */
export type ChangedFrontends = ReadonlyMap<string, FrontendChange>

/**
 * The elements of all Services, and which Service owns each frontend. A change of a Service touches its own elements.
 * Of several Services that claim a frontend, the one whose ClusterIP the address is has it, then the oldest one, then
 * the first one by name. A ClusterIP belongs to its Service with all ports: no other one gets a port of it.
 */
export class WantedElements {
  readonly #elements: Pick<Elements, 'put' | 'remove'>
  readonly #compiled = new Map<string, CompiledService>()
  /** The Services that claim a frontend, such as an external IP that two of them name, and the one that has it. */
  readonly #claims = new Map<string, string[]>()
  readonly #owners = new Map<string, string>()
  readonly #served = new Map<string, Frontend>()
  readonly #nodePorts = new Map<string, Frontend>()
  /** The Services of each ClusterIP, and the frontends at each address that is named as one of the outside. */
  readonly #clusterIPs = new Map<Ip, string[]>()
  readonly #outside = new Map<Ip, Set<string>>()
  /** The frontends that some Service claims without having them. */
  readonly #contested = new Set<string>()
  #conflicts: readonly Conflict[] | undefined
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

  /** Those among them that are ports of the node. */
  get nodePorts(): ReadonlyMap<string, Frontend> {
    return this.#nodePorts
  }

  /** The result for a Service, by `namespace/name`. */
  of(service: string): CompiledService | undefined {
    return this.#compiled.get(service)
  }

  /** Whether the address is a ClusterIP. */
  isClusterIP(ip: Ip): boolean {
    return this.#clusterIPs.has(ip)
  }

  /** The addresses and ports that a Service names without having them, by Service. */
  get conflicts(): readonly Conflict[] {
    this.#conflicts ??= [...this.#contested].flatMap((name) => this.#conflictsAt(name)).sort(byText)
    return this.#conflicts
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
      return this.#owners.get(`vip${family} ${key}`) === service
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
  update(changes: ReadonlyMap<string, CompiledService | undefined>): ChangedFrontends {
    const touched = new Set<string>()
    for (const [service, next = NOTHING] of changes) {
      const before = this.#compiled.get(service) ?? NOTHING
      for (const [name, frontend] of before.frontends) {
        const now = next.frontends.get(name)
        if (now && isSame(frontend, now)) continue
        touched.add(name)
        if (!now) this.#unclaim(name, service, frontend)
      }
      for (const [name, { ip, of }] of next.frontends) {
        if (ip !== undefined && !of.includes('clusterIPs')) addTo(this.#outside, ip, name)
        if (before.createdAt !== next.createdAt) touched.add(name)
        if (before.frontends.has(name)) continue
        touched.add(name)
        this.#claims.set(name, [...(this.#claims.get(name) ?? []), service])
      }
      for (const ip of before.vips) if (!next.vips.includes(ip)) this.#dropClusterIP(ip, service, touched)
      for (const ip of next.vips) if (!before.vips.includes(ip)) this.#addClusterIP(ip, service, touched)
      if (before.createdAt !== next.createdAt)
        for (const ip of next.vips) for (const name of this.#outside.get(ip) ?? []) touched.add(name)
      for (const ip of before.hairpins) this.#count(...hairpinOf(ip), -1)
      for (const ip of next.hairpins) this.#count(...hairpinOf(ip), 1)
      if (!isEqual(before.restricted, next.restricted)) this.#sourcesVersion++
      if (next.restricted.size > 0) this.#restricted.add(service)
      else this.#restricted.delete(service)
      if (next.health) this.health.set(service, next.health)
      else this.health.delete(service)
      if (next === NOTHING) this.#compiled.delete(service)
      else this.#compiled.set(service, next)
    }
    const changed = new Map<string, FrontendChange>()
    for (const name of touched) {
      const owner = this.#own(name)
      const [before, now] = [this.#served.get(name), this.#compiled.get(owner ?? '')?.frontends.get(name)]
      if (before && now && isSame(before, now)) continue
      if (before) {
        const wanted = new Set(now ? [...elementsOf(now)].map(([set, key]) => `${set} ${key}`) : [])
        for (const [set, key] of elementsOf(before)) if (!wanted.has(`${set} ${key}`)) this.#elements.remove(set, key)
      }
      for (const [set, key, value] of now ? elementsOf(now) : []) this.#elements.put(set, key, value)
      if (typeof before?.answer === 'object') this.#countChain(before.answer, -1)
      if (typeof now?.answer === 'object') this.#countChain(now.answer, 1)
      const both = (now ?? before)?.kind === 'port' ? [this.#served, this.#nodePorts] : [this.#served]
      for (const all of both)
        if (now) all.set(name, now)
        else all.delete(name)
      changed.set(name, { before, now })
    }
    return changed
  }

  #unclaim(name: string, service: string, { ip }: Frontend): void {
    const left = (this.#claims.get(name) ?? []).filter((one) => one !== service)
    if (left.length > 0) {
      this.#claims.set(name, left)
      return
    }
    this.#claims.delete(name)
    if (ip !== undefined) dropFrom(this.#outside, ip, name)
  }

  // Decides which Service has a frontend.
  #own(name: string): string | undefined {
    const claims = this.#claims.get(name) ?? []
    const entitled = claims.filter((service) => !this.#isForeign(name, service))
    const owner = entitled.reduce((first: string | undefined, one) => {
      return first !== undefined && this.#isOlder(first, one) ? first : one
    }, undefined)
    const isContested = claims.length > (owner === undefined ? 0 : 1)
    if (isContested || this.#contested.has(name)) this.#conflicts = undefined
    if (isContested) this.#contested.add(name)
    else this.#contested.delete(name)
    if (owner === this.#owners.get(name)) return owner
    // Another Service has other sources.
    const key = name.slice(name.indexOf(' ') + 1)
    if (claims.some((service) => this.#compiled.get(service)?.restricted.has(key))) this.#sourcesVersion++
    if (owner === undefined) this.#owners.delete(name)
    else this.#owners.set(name, owner)
    return owner
  }

  // Whether the address is the ClusterIP of other Services.
  #isForeign(name: string, service: string): boolean {
    const { ip, of } = this.#compiled.get(service)?.frontends.get(name) ?? {}
    return ip !== undefined && !of?.includes('clusterIPs') && this.#clusterIPs.has(ip)
  }

  // A Service of unknown age, which only a manifest has, comes after all others.
  #isOlder(one: string, other: string): boolean {
    const [a, b] = [one, other].map((service) => this.#compiled.get(service)?.createdAt ?? Number.POSITIVE_INFINITY)
    return a === b ? one < other : (a as number) < (b as number)
  }

  #conflictsAt(name: string): Conflict[] {
    const owner = this.#owners.get(name)
    const losers = (this.#claims.get(name) ?? []).filter((one) => one !== owner)
    return losers.flatMap((loser) => {
      const frontend = this.#compiled.get(loser)?.frontends.get(name)
      if (!frontend) return []
      const { ip, of, key } = frontend
      const what = `Service ${loser} does not get ${placeOf(key)} of its ${of.join(' and ') || 'node ports'}`
      const first = ip !== undefined && this.#isForeign(name, loser) ? this.#oldestOf(ip) : undefined
      const isSameAge = this.#compiled.get(loser)?.createdAt === this.#compiled.get(owner ?? '')?.createdAt
      const why =
        first !== undefined
          ? `${ip} is the ClusterIP of Service ${first}`
          : `Service ${owner} has it, which is ${isSameAge ? 'as old, and first by name' : 'older'}`
      return [{ name, loser, text: `${what}: ${why}` }]
    })
  }

  #oldestOf(ip: Ip): string | undefined {
    const [first = '', ...others] = this.#clusterIPs.get(ip) ?? []
    return others.reduce((oldest, one) => (this.#isOlder(oldest, one) ? oldest : one), first)
  }

  #addClusterIP(ip: Ip, service: string, touched: Set<string>): void {
    const services = this.#clusterIPs.get(ip) ?? []
    this.#clusterIPs.set(ip, [...services, service])
    this.#elements.put(...vipOf(ip))
    for (const name of this.#outside.get(ip) ?? []) touched.add(name)
  }

  #dropClusterIP(ip: Ip, service: string, touched: Set<string>): void {
    const left = (this.#clusterIPs.get(ip) ?? []).filter((one) => one !== service)
    for (const name of this.#outside.get(ip) ?? []) touched.add(name)
    if (left.length > 0) {
      this.#clusterIPs.set(ip, left)
      return
    }
    this.#clusterIPs.delete(ip)
    this.#elements.remove(...vipOf(ip))
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

function vipOf(ip: Ip): [set: string, key: string] {
  return [`vips${ip.includes(':') ? 6 : 4}`, ip]
}

// Several Services may need one.
function hairpinOf(ip: Ip): [set: string, key: string] {
  return [`hairpin${ip.includes(':') ? 6 : 4}`, `${ip} . ${ip}`]
}

// `10.96.0.1 . tcp . 80`, or `tcp . 30080`: the address, and the port as people write it.
function placeOf(key: string): string {
  const [port, protocol = '', ip] = key.split(' . ').reverse()
  const place = `port ${port}/${protocol.toUpperCase()}`
  return ip === undefined ? place : `${ip} ${place}`
}

// Both families of a node port have one text.
function byText(a: Conflict, b: Conflict): number {
  return `${a.text} ${a.name}` < `${b.text} ${b.name}` ? -1 : 1
}

function addTo(sets: Map<Ip, Set<string>>, ip: Ip, name: string): void {
  sets.set(ip, (sets.get(ip) ?? new Set()).add(name))
}

function dropFrom(sets: Map<Ip, Set<string>>, ip: Ip, name: string): void {
  const names = sets.get(ip)
  names?.delete(name)
  if (names?.size === 0) sets.delete(ip)
}
