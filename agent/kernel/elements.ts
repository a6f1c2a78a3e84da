import { generation as kernelGeneration } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { bytesOf, type Datatype, textOfBytes, verdictOf } from './element-bytes.ts'
import { dumpElements } from './element-dump.ts'

/** What a set or a map holds. Hash sets only: their elements go and come at the same cost whatever their number, which those of an interval set do not. */
export interface Shape {
  readonly key: readonly Datatype[]
  /** Absent in a set. */
  readonly value?: readonly Datatype[] | 'verdict'
}

/** What one step did. */
export interface Stepped {
  /** How many elements were added, removed or given another value. */
  readonly changed: number
  /** Those that somebody else had added, removed or changed: `map vips4: 10.1.2.3 . tcp . 80`. */
  readonly repaired: readonly string[]
}

/** Lines of nft that go into the same transaction. */
export interface Around {
  /** Before the elements: chains that they lead to. */
  readonly before?: readonly string[]
  /** After them: chains that nothing leads to any more. */
  readonly after?: readonly string[]
}

interface Kept {
  readonly shape: Shape
  /** As they are to be, and as the kernel was left: nft's text of a key, and of its value. */
  readonly wanted: Map<string, string>
  readonly have: Map<string, string>
  /** Keys in which the two may differ. */
  readonly changed: Set<string>
}

const TOOL = ['nft', '-f', '-']
/** Where others change rules all the time, one of these meets a quiet moment. */
const TRIES = 5

/**
 * The elements of sets and maps of one `inet` table that is ours, whatever their number: `put` and `remove` say what is to be, a step tells the kernel what changed since the last one, in one transaction.
 * Nothing is listed as long as nobody else touched the table. In doubt the kernel's generation counter is looked at first (a transaction of whoever it is makes it one more), and only when it is another are the elements asked for.
 */
export class Elements {
  readonly #table: string
  readonly #maps: ReadonlyMap<string, Kept>
  readonly #generation: () => number | undefined
  readonly #dump: typeof dumpElements
  #isDoubtful = true
  #isFirst = true
  /** The counter after our last transaction, when nobody else's came between. */
  #left: number | undefined

  /** `generation` and `dump` ask the kernel of this thread's namespace. */
  constructor(table: string, shapes: Readonly<Record<string, Shape>>, { generation = kernelGeneration, dump = dumpElements } = {}) {
    this.#table = table
    this.#maps = new Map(Object.entries(shapes).map(([name, shape]) => [name, { shape, wanted: new Map(), have: new Map(), changed: new Set() }]))
    this.#generation = generation
    this.#dump = dump
  }

  /** This element is to be there, with this value in a map. Keys and values are nft's text, in the one form that nft prints. */
  put(name: string, key: string, value = ''): void {
    const map = this.#map(name)
    if (map.wanted.get(key) === value) return
    map.wanted.set(key, value)
    map.changed.add(key)
  }

  /** This element is not to be there. */
  remove(name: string, key: string): void {
    const map = this.#map(name)
    if (map.wanted.delete(key)) map.changed.add(key)
  }

  /** How many elements a set or map is to have. */
  size(name: string): number {
    return this.#map(name).wanted.size
  }

  /** Somebody may have changed the table: the next step looks. */
  doubt(): void {
    this.#isDoubtful = true
  }

  /** Makes it so, in one transaction. The table and its sets have to be there. Throws ExecError when nft refuses; the next step then looks at what the kernel has. */
  async step(run: Run, { before = [], after = [] }: Around = {}): Promise<Stepped> {
    const found = this.#isDoubtful ? this.#look() : []
    // What an earlier life left is nobody's doing.
    const repaired = this.#isFirst ? [] : found
    this.#isFirst = this.#isDoubtful = false
    const lines: string[] = []
    let changed = 0
    for (const [name, map] of this.#maps) {
      const { add, drop, count } = difference(map)
      changed += count
      if (drop.length > 0) lines.push(`delete element inet ${this.#table} ${name} { ${drop.join(', ')} }`)
      if (add.length > 0) lines.push(`add element inet ${this.#table} ${name} { ${add.join(', ')} }`)
    }
    const all = [...before, ...lines, ...after]
    if (all.length === 0) return { changed, repaired }
    const counted = this.#generation()
    const { status, stderr } = await run(TOOL, `${all.join('\n')}\n`)
    if (status !== 0) {
      this.#isDoubtful = true
      this.#left = undefined
      throw new ExecError(TOOL, `table inet ${this.#table}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
    }
    for (const map of this.#maps.values()) settle(map)
    const now = this.#generation()
    const isAlone = counted !== undefined && now === counted + 1
    // Another's transaction came between: it may be about our table.
    this.#left = isAlone ? now : undefined
    return { changed, repaired }
  }

  // What the kernel has takes the place of what it was left with. Gives what is to be put right.
  #look(): string[] {
    for (let tries = 1; ; tries++) {
      const before = this.#generation()
      if (before !== undefined && before === this.#left) return []
      const repaired = [...this.#maps].flatMap(([name, map]) => compare(`${map.shape.value === undefined ? 'set' : 'map'} ${name}`, map, this.#dump(this.#table, name) ?? new Map()))
      // A list that was taken while somebody changed the table may lack some, or have them twice.
      if (before !== undefined && this.#generation() !== before && tries < TRIES) continue
      this.#left = before
      return repaired
    }
  }

  #map(name: string): Kept {
    const map = this.#maps.get(name)
    if (!map) throw new RangeError(`The table ${this.#table} has no set ${name}`)
    return map
  }
}

function difference({ wanted, have, changed, shape }: Kept): { add: string[]; drop: string[]; count: number } {
  const [add, drop]: [string[], string[]] = [[], []]
  let count = 0
  for (const key of changed) {
    const [is, was] = [wanted.get(key), have.get(key)]
    if (is === was) continue
    count++
    if (was !== undefined) drop.push(key)
    if (is !== undefined) add.push(shape.value === undefined ? key : `${key} : ${is}`)
  }
  return { add, drop, count }
}

function settle({ wanted, have, changed }: Kept): void {
  for (const key of changed) {
    const is = wanted.get(key)
    if (is === undefined) have.delete(key)
    else have.set(key, is)
  }
  changed.clear()
}

// `kernel` is in the kernel's bytes, all else in nft's text. What nobody wants and nobody left is known by its bytes alone.
function compare(title: string, map: Kept, kernel: ReadonlyMap<string, string>): string[] {
  const { shape, wanted, have, changed } = map
  const { value } = shape
  const encode = (text: string) => (value === undefined ? '' : value === 'verdict' ? verdictOf(text) : bytesOf(text, value))
  const repaired: string[] = []
  const known = new Set<string>()
  for (const key of new Set([...wanted.keys(), ...have.keys()])) {
    const bytes = bytesOf(key, shape.key)
    known.add(bytes)
    const [is, was] = [kernel.get(bytes), have.get(key)]
    if (is === (was === undefined ? undefined : encode(was))) continue
    if (was !== undefined || is !== undefined) repaired.push(`${title}: ${key}`)
    const want = wanted.get(key)
    if (is === undefined) have.delete(key)
    else have.set(key, want !== undefined && is === encode(want) ? want : OTHER)
    changed.add(key)
  }
  for (const bytes of kernel.keys()) {
    if (known.has(bytes)) continue
    const key = textOfBytes(bytes, shape.key)
    repaired.push(`${title}: ${key}`)
    have.set(key, OTHER)
    changed.add(key)
  }
  return repaired
}

/** A value that nobody wants: the element goes, or is given another. */
const OTHER = '?'
