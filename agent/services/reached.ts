import type { Ip } from '../../lib/text/ip.ts'
import type { AddressField, Frontend } from './compile.ts'

/** Addresses of Services, with the fields of Services that have them. */
export type Reached = ReadonlyMap<Ip, readonly AddressField[]>

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

  /** The addresses now. */
  get all(): Reached {
    return this.#all
  }

  /** Takes the changes of frontends. */
  note(changes: Iterable<{ readonly before: Frontend | undefined; readonly now: Frontend | undefined }>): void {
    for (const { before, now } of changes) {
      this.#count(before, -1)
      this.#count(now, 1)
    }
  }

  /** Takes away what is no longer served. The kernel has it still. Tells whether the addresses changed. */
  shrink(): boolean {
    return this.#set((ip) => this.#fieldsOf(ip).filter((field) => this.#all.get(ip)?.includes(field)))
  }

  /** Adds what is served now. The kernel has it. Tells whether the addresses changed. */
  grow(): boolean {
    const isChanged = this.#set((ip) => this.#fieldsOf(ip))
    this.#changed.clear()
    return isChanged
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
