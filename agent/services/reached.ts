import type { Ip } from '../../lib/text/ip.ts'
import type { AddressField, Frontend } from './compile.ts'
import type { FrontendChange } from './wanted-elements.ts'

/** Addresses of Services, with the fields of Services that have them. */
export type Reached = ReadonlyMap<Ip, readonly AddressField[]>

/** The addresses of a node that serves no clients from outside. */
const NOWHERE: Reached = new Map()
const FIELDS: readonly AddressField[] = ['clusterIPs', 'externalIPs', 'loadBalancerIPs']

/**
 * The addresses at which this node serves clients from outside: what BGP may announce. An address that the node begins
 * to serve comes when the kernel has it. One that ends goes before the kernel loses it. A change costs what it changes,
 * whatever the number of addresses.
 */
export class ReachedAddresses {
  /** How many frontends serve, by address, in the order of `FIELDS`. */
  readonly #served = new Map<Ip, number[]>()
  readonly #all = new Map<Ip, readonly AddressField[]>()
  /** The addresses whose frontends changed since the kernel had them. */
  readonly #changed = new Set<Ip>()
  /** The node serves clients from outside. Undefined before the first `grow`. The next `grow` makes it as wanted. */
  #isForOutside: boolean | undefined
  #isWantedOutside = false

  #onChanged = () => {}

  /** Calls `changed` after each change of the addresses. */
  onChanged(changed: () => void): void {
    this.#onChanged = changed
  }

  /** The addresses now. Undefined before the first `grow`. */
  get all(): Reached | undefined {
    if (this.#isForOutside === undefined) return undefined
    return this.#isForOutside ? this.#all : NOWHERE
  }

  /** Takes the changes of frontends, and whether the node serves clients from outside. */
  note(changes: Iterable<FrontendChange>, isForOutside: boolean): void {
    this.#isWantedOutside = isForOutside
    for (const { before, now } of changes) {
      this.#count(before, -1)
      this.#count(now, 1)
    }
  }

  /** Takes away what is no longer served. The kernel has it still. */
  shrink(): void {
    const isChanged = this.#set((ip) => this.#fieldsOf(ip).filter((field) => this.#all.get(ip)?.includes(field)))
    const isLeaving = this.#isForOutside === true && !this.#isWantedOutside
    if (isLeaving) this.#isForOutside = false
    if (isChanged || isLeaving) this.#onChanged()
  }

  /** Adds what is served now. The kernel has it. */
  grow(): void {
    const isChanged = this.#set((ip) => this.#fieldsOf(ip))
    this.#changed.clear()
    const isOther = this.#isForOutside !== this.#isWantedOutside
    this.#isForOutside = this.#isWantedOutside
    if (isChanged || isOther) this.#onChanged()
  }

  #count(frontend: Frontend | undefined, change: 1 | -1): void {
    if (frontend?.ip === undefined || !frontend.isReached) return
    const { ip, of } = frontend
    const counts = this.#served.get(ip) ?? FIELDS.map(() => 0)
    for (const field of of) counts[FIELDS.indexOf(field)] = (counts[FIELDS.indexOf(field)] as number) + change
    if (counts.some((count) => count > 0)) this.#served.set(ip, counts)
    else this.#served.delete(ip)
    this.#changed.add(ip)
  }

  #fieldsOf(ip: Ip): AddressField[] {
    const counts = this.#served.get(ip)
    return FIELDS.filter((_, i) => (counts?.[i] ?? 0) > 0)
  }

  #set(fieldsOf: (ip: Ip) => readonly AddressField[]): boolean {
    let isChanged = false
    for (const ip of this.#changed) {
      const [before, now] = [this.#all.get(ip) ?? [], fieldsOf(ip)]
      if (before.join() === now.join()) continue
      isChanged = true
      if (now.length > 0) this.#all.set(ip, now)
      else this.#all.delete(ip)
    }
    return isChanged
  }
}
