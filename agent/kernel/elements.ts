import { generation as kernelGeneration } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { type Datatype, encoder, textOfBytes, verdictOf } from './element-bytes.ts'
import { dumpElements } from './element-dump.ts'

/**
 * The types of a set or a map. Only hash sets are supported, because adding and removing an element costs the same at
 * any size. Interval sets do not have this property.
 */
export interface Shape {
  readonly key: readonly Datatype[]
  /** The type of the values. Absent for a set. */
  readonly value?: readonly Datatype[] | 'verdict'
}

/** The result of one step. */
export interface Stepped {
  /** The number of elements that were added, removed or given another value. */
  readonly changed: number
  /** The elements that another program had added, removed or changed, such as `map svc4: 10.1.2.3 . tcp . 80`. */
  readonly repaired: readonly string[]
  /** The same of the first step. These elements come from an earlier run, and are no repairs. */
  readonly inherited: readonly string[]
}

/** Lines of nft that go into the same transaction. */
export interface Surrounding {
  /** Lines before the elements, for chains that the elements lead to. */
  readonly before?: readonly string[]
  /** Lines after the elements, for chains that no element leads to any more. */
  readonly after?: readonly string[]
}

interface CachedMap {
  readonly shape: Shape
  /**
   * The wanted elements, and the elements that the last step left in the kernel. Both map nft's text of a key to the
   * text of its value.
   */
  readonly wanted: Map<string, string>
  readonly have: Map<string, string>
  /** Keys whose elements may differ between the two maps. */
  readonly changed: Set<string>
  /** Nobody wants the set any more. The next transaction removes it as a whole. */
  isDropped: boolean
}

const TOOL = ['nft', '-f', '-']
/** The number of attempts to dump a set or map while no other program commits a transaction. */
const TRIES = 3

/**
 * The elements of sets and maps of one table that belongs to the agent, at any size. `put` and `remove` set the wanted
 * elements. A step sends the changes since the last step to the kernel in one transaction. It lists nothing as long as
 * no other program touched the table. When stale, a step first reads the kernel's generation counter, because every
 * transaction of any program adds one to it. It dumps the elements only when the counter has changed.
 */
export class Elements {
  readonly #table: string
  readonly #family: 'inet' | 'bridge'
  readonly #most: number
  readonly #maps: Map<string, CachedMap>
  readonly #generation: () => number | undefined
  readonly #dump: typeof dumpElements
  #isStale = true
  #isFirst = true
  /**
   * The generation counter after the last transaction of this table. Undefined when another program's transaction may
   * have come between.
   */
  #left: number | undefined

  /**
   * `generation` and `dump` query the kernel in this thread's namespace. `most` is the number of elements in one
   * transaction, because nft holds a transaction in memory, 2.4 kB per element. A step with more of them takes several
   * transactions.
   */
  constructor(
    table: string,
    shapes: Readonly<Record<string, Shape>>,
    {
      generation = kernelGeneration,
      dump = dumpElements,
      family = 'inet' as 'inet' | 'bridge',
      most = Number.POSITIVE_INFINITY,
    } = {},
  ) {
    this.#table = table
    this.#family = family
    this.#most = most
    this.#maps = new Map(Object.entries(shapes).map(([name, shape]) => [name, empty(shape)]))
    this.#generation = generation
    this.#dump = dump
  }

  /** Adds a set or map that did not exist at the start. `before` of the next step has the line that makes it. */
  define(name: string, shape: Shape): void {
    const old = this.#maps.get(name)
    if (!old) this.#maps.set(name, empty(shape))
    else if (old.isDropped) old.isDropped = false
    else throw new RangeError(`The table ${this.#table} has the set ${name} already`)
    for (const key of old?.have.keys() ?? []) old?.changed.add(key)
  }

  /** Drops a set or map with all of its elements. `after` of the next step has the line that removes it. */
  drop(name: string): void {
    const map = this.#map(name)
    map.isDropped = true
    map.wanted.clear()
    map.changed.clear()
  }

  /** Notes that the next step makes the whole table again, with no elements. `before` of that step has the lines. */
  forget(): void {
    for (const [name, map] of this.#maps) {
      if (map.isDropped) this.#maps.delete(name)
      map.have.clear()
      for (const key of map.wanted.keys()) map.changed.add(key)
    }
    this.#isStale = this.#isFirst = false
    this.#left = undefined
  }

  /** The wanted elements of a set or map. */
  wanted(name: string): ReadonlyMap<string, string> {
    return this.#map(name).wanted
  }

  /** The names of all sets and maps. */
  names(): readonly string[] {
    return [...this.#maps].flatMap(([name, { isDropped }]) => (isDropped ? [] : [name]))
  }

  /** Whether another program may have changed the table since the last step. */
  get mayDiffer(): boolean {
    return this.#isStale && (this.#left === undefined || this.#generation() !== this.#left)
  }

  /** Whether no transaction of any program came after the last one of this table. */
  get isLast(): boolean {
    return this.#left !== undefined && this.#generation() === this.#left
  }

  /** Adds an element to the wanted elements, with its value in a map. Keys and values are texts as nft prints them. */
  put(name: string, key: string, value = ''): void {
    const map = this.#map(name)
    if (map.wanted.get(key) === value) return
    map.wanted.set(key, value)
    map.changed.add(key)
  }

  /** Removes an element from the wanted elements. */
  remove(name: string, key: string): void {
    const map = this.#map(name)
    if (map.wanted.delete(key)) map.changed.add(key)
  }

  /** The number of wanted elements in a set or map. */
  size(name: string): number {
    return this.#map(name).wanted.size
  }

  /** Notes that another program may have changed the table. The next step checks it. */
  invalidate(): void {
    this.#isStale = true
  }

  /**
   * Makes the kernel equal to the wanted elements, in one transaction. The table and its sets must exist. More than
   * `most` changes take several transactions: first what comes, in the order of the shapes, then what goes. Throws
   * ExecError when nft refuses. The next step then dumps the kernel's elements.
   */
  async step(run: Run, { before = [], after = [] }: Surrounding = {}): Promise<Stepped> {
    const wasStale = this.#isStale
    // What is invalidated during the look stays stale for the next step.
    this.#isStale = false
    const found = wasStale ? await this.#look() : []
    const [repaired, inherited] = this.#isFirst ? [[], found] : [found, []]
    const scripts: string[][] = [[...before]]
    let [changed, room] = [0, this.#most]
    for (const [name, keys] of this.#changes()) {
      changed += keys.length
      for (let at = 0; at < keys.length; ) {
        const part = keys.slice(at, at + room)
        at += part.length
        room -= part.length
        scripts.at(-1)?.push(...linesOf(`${this.#family} ${this.#table}`, name, this.#map(name), part))
        if (room === 0) scripts.push([])
        if (room === 0) room = this.#most
      }
    }
    scripts.at(-1)?.push(...after)
    const filled = scripts.filter(({ length }) => length > 0)
    if (filled.length === 0) {
      this.#isFirst = false
      return { changed, repaired, inherited }
    }
    const counted = this.#generation()
    const isSeen = !wasStale || counted === this.#left
    for (const lines of filled) {
      const { status, stderr } = await run(TOOL, `${lines.join('\n')}\n`)
      if (status === 0) continue
      this.#isStale = true
      this.#left = undefined
      const why = stderr.split('\n', 1)[0] || `ended with status ${status}`
      throw new ExecError(TOOL, `table ${this.#family} ${this.#table}`, why)
    }
    // After a failed first step, the next one finds the elements of an earlier run again.
    this.#isFirst = false
    for (const [name, map] of this.#maps) {
      if (map.isDropped) this.#maps.delete(name)
      else settle(map)
    }
    const now = this.#generation()
    const isAlone = isSeen && counted !== undefined && now === counted + filled.length
    // Another program's transaction came between. It may have changed this table.
    this.#left = isAlone ? now : undefined
    return { changed, repaired, inherited }
  }

  // The keys to change, by set. What is new comes in the order of the shapes, and what goes in the opposite order. So
  // with several transactions, too, an element leads only to elements that are there.
  #changes(): (readonly [name: string, keys: readonly string[]])[] {
    const all = [...this.#maps].flatMap(([name, map]) => {
      if (map.isDropped) return []
      const keys = difference(map)
      const isWanted = (key: string) => map.wanted.has(key)
      return [{ name, come: keys.filter(isWanted), go: keys.filter((key) => !isWanted(key)) }]
    })
    return [
      ...all.map(({ name, come }) => [name, come] as const),
      ...all.reverse().map(({ name, go }) => [name, go] as const),
    ]
  }

  // Updates `have` with the elements in the kernel. Gives the elements that another program changed.
  async #look(): Promise<string[]> {
    const repaired: string[] = []
    try {
      const first = this.#generation()
      if (first !== undefined && first === this.#left) return []
      // A transaction during the dumps may change a map that was dumped before it: the counter differs at the next look.
      this.#left = first
      for (const [name, map] of this.#maps) {
        if (map.isDropped) continue
        const title = `${map.shape.value === undefined ? 'set' : 'map'} ${name}`
        repaired.push(...compare(title, map, await this.#dumped(name)))
      }
    } catch (cause) {
      this.#isStale = true
      this.#left = undefined
      throw cause
    }
    return repaired
  }

  // A dump during a transaction may lack elements or hold them twice, so that one map is dumped again. Other work has
  // its turn before each dump.
  async #dumped(name: string): Promise<ReadonlyMap<string, string>> {
    for (let tries = 1; ; tries++) {
      await new Promise((resolve) => setImmediate(resolve))
      const before = this.#generation()
      const found = this.#dump(this.#table, name, this.#family)
      if (before === undefined || tries === TRIES || this.#generation() === before) return found
    }
  }

  #map(name: string): CachedMap {
    const map = this.#maps.get(name)
    if (!map) throw new RangeError(`The table ${this.#table} has no set ${name}`)
    return map
  }
}

function empty(shape: Shape): CachedMap {
  return { shape, wanted: new Map(), have: new Map(), changed: new Set(), isDropped: false }
}

/** Elements in one line. nft keeps each line in memory as a whole. */
const CHUNK = 1000

function* chunks(elements: readonly string[]): Generator<string> {
  for (let at = 0; at < elements.length; at += CHUNK) yield elements.slice(at, at + CHUNK).join(', ')
}

// The keys whose elements differ.
function difference({ wanted, have, changed }: CachedMap): string[] {
  return [...changed].filter((key) => wanted.get(key) !== have.get(key))
}

function linesOf(table: string, name: string, { wanted, have, shape }: CachedMap, keys: readonly string[]): string[] {
  const drop = keys.filter((key) => have.has(key))
  const add = keys
    .filter((key) => wanted.has(key))
    .map((key) => (shape.value === undefined ? key : `${key} : ${wanted.get(key)}`))
  return [
    ...[...chunks(drop)].map((some) => `delete element ${table} ${name} { ${some} }`),
    ...[...chunks(add)].map((some) => `add element ${table} ${name} { ${some} }`),
  ]
}

function settle({ wanted, have, changed }: CachedMap): void {
  for (const key of changed) {
    const is = wanted.get(key)
    if (is === undefined) have.delete(key)
    else have.set(key, is)
  }
  changed.clear()
}

// `kernel` has the kernel's bytes, and all other maps have nft's text. An unknown element's text comes from its bytes.
function compare(title: string, map: CachedMap, kernel: ReadonlyMap<string, string>): string[] {
  const { shape, wanted, have, changed } = map
  const { value } = shape
  const keyOf = encoder(shape.key)
  const encode = value === undefined ? () => '' : value === 'verdict' ? verdictOf : encoder(value)
  const repaired: string[] = []
  const known = new Set<string>()
  for (const key of new Set([...wanted.keys(), ...have.keys()])) {
    const bytes = keyOf(key)
    known.add(bytes)
    const [is, was] = [kernel.get(bytes), have.get(key)]
    // After a failed step the other value is still there.
    if (was !== OTHER && is === (was === undefined ? undefined : encode(was))) continue
    const want = wanted.get(key)
    const isWanted = want !== undefined && is === encode(want)
    if ((was !== undefined || is !== undefined) && !isWanted) repaired.push(`${title}: ${key}`)
    if (is === undefined) have.delete(key)
    else have.set(key, isWanted ? want : OTHER)
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

/** Stands for a value that is not wanted. The next difference removes the element or gives it the wanted value. */
const OTHER = '?'
