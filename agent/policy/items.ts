/**
 * A chain, a set or a counter of the table. It is made when something first needs it, and removed when nothing needs it
 * any more.
 */
export interface Item {
  /** The name in the table. Items of one name are the same. */
  readonly name: string
  readonly kind: 'chain' | 'set' | 'counter'
  /** The lines of nft that make it. */
  readonly make: readonly string[]
  /** The items that its lines name. */
  readonly needs: readonly Item[]
  /** Called when it is first needed, and when it is needed no more. Of sets whose elements follow the cluster. */
  readonly begin?: () => void
  readonly end?: () => void
}

interface Held {
  readonly item: Item
  count: number
}

/** The items of one table, counted by who needs them. Changes are gathered for one transaction. */
export class Items {
  readonly #table: string
  readonly #held = new Map<string, Held>()
  /** The items that the last transaction left in the kernel. */
  readonly #made = new Map<string, Item>()
  readonly #changed = new Set<string>()

  constructor(table: string) {
    this.#table = table
  }

  /** Notes a need of an item. */
  hold(item: Item): void {
    const held = this.#held.get(item.name)
    if (held) {
      held.count++
      return
    }
    for (const need of item.needs) this.hold(need)
    this.#held.set(item.name, { item, count: 1 })
    // An item stands after those that it needs.
    this.#changed.delete(item.name)
    this.#changed.add(item.name)
    item.begin?.()
  }

  /** Takes a need back. */
  release({ name }: Item): void {
    const held = this.#held.get(name)
    if (!held) throw new RangeError(`The table ${this.#table} has no ${name}`)
    if (--held.count > 0) return
    this.#held.delete(name)
    this.#changed.add(name)
    held.item.end?.()
    for (const need of held.item.needs) this.release(need)
  }

  /** All items. */
  *all(): Generator<Item> {
    for (const { item } of this.#held.values()) yield item
  }

  /** The lines that make all items, for a whole table. */
  anew(): string[] {
    return [...this.all()].flatMap(({ make }) => make)
  }

  /** The lines of the changes since the last transaction: before those of elements, and after them. */
  changes(): { readonly before: string[]; readonly after: string[] } {
    const fresh = [...this.#changed].filter((name) => !this.#made.has(name))
    const before = fresh.flatMap((name) => this.#held.get(name)?.item.make ?? [])
    const gone = [...this.#changed].flatMap((name) => (this.#held.has(name) ? [] : (this.#made.get(name) ?? [])))
    const of = (kind: Item['kind']) => gone.filter((item) => item.kind === kind)
    const [chains, others] = [of('chain'), [...of('set'), ...of('counter')]]
    // A rule holds what it names.
    const after = [
      ...chains.map(({ name }) => `flush chain ${this.#table} ${name}`),
      ...[...chains, ...others].map(({ kind, name }) => `delete ${kind} ${this.#table} ${name}`),
    ]
    return { before, after }
  }

  /** Notes that the kernel has all changes. */
  settle(): void {
    for (const name of this.#changed) {
      const held = this.#held.get(name)
      if (held) this.#made.set(name, held.item)
      else this.#made.delete(name)
    }
    this.#changed.clear()
  }

  /** Notes that the kernel has exactly these items, after the whole table was made. */
  settleAll(): void {
    this.#made.clear()
    for (const item of this.all()) this.#made.set(item.name, item)
    this.#changed.clear()
  }
}
