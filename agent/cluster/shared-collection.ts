import { ValueError } from '../../lib/text/errors.ts'
import type { Source } from '../scheduler/follow.ts'
import type { Api, WatchEvent } from './api.ts'
import { type Changed, Collection } from './collection.ts'

/** What one reader makes of the objects that all readers share. */
export interface Reading<T> {
  /** As in `Kind`. */
  project(raw: unknown): T | undefined
  /** Called for each object whose value for this reader changes. */
  readonly changed: Changed<T>
  /** Called when the server has answered, when a request failed, and after each list, also one that failed. */
  answered?(): void
  failed?(cause: unknown): void
  listed?(): void
}

/** The objects as one reader sees them. */
export interface Reader<T> {
  readonly items: ReadonlyMap<string, T>
  /** Why objects cannot be read, by key. */
  readonly refused: ReadonlyMap<string, string>
  readonly isListed: boolean
}

/** What one reader made of one object. */
interface Made {
  readonly value?: unknown
  readonly refused?: string
}

/**
 * Objects of one kind that several readers need, listed and watched once for all. The Nodes of a large cluster are
 * most of what an agent asks the API server for. Each reader keeps a value of its own. All readers come before the
 * first list. One of them follows the collection.
 */
export class SharedCollection implements Source<string, WatchEvent> {
  readonly #collection: Collection<readonly Made[]>
  readonly #readers: { readonly reading: Reading<unknown>; readonly seen: Seen }[] = []

  constructor(api: Api, path: string) {
    const project = (raw: unknown): readonly Made[] => this.#readers.map(({ reading }) => madeOf(reading, raw))
    this.#collection = new Collection(api, { path, project }, (key, now, before) => this.#changed(key, now, before))
  }

  /** Adds a reader. Call it before the first list. */
  reader<T>(reading: Reading<T>): Reader<T> {
    const seen: Seen = { items: new Map(), refused: new Map() }
    this.#readers.push({ reading: reading as Reading<unknown>, seen })
    const collection = this.#collection
    return {
      items: seen.items as ReadonlyMap<string, T>,
      refused: seen.refused,
      get isListed() {
        return collection.isListed
      },
    }
  }

  known(): string | undefined {
    return this.#collection.known()
  }

  async list(signal: AbortSignal): Promise<void> {
    try {
      await this.#collection.list(signal)
      this.#each(({ answered }) => answered?.())
    } catch (cause) {
      this.#each(({ failed }) => failed?.(cause))
      throw cause
    } finally {
      this.#each(({ listed }) => listed?.())
    }
  }

  async *watch(after: string, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    try {
      yield* this.#collection.watch(after, signal, () => this.#each(({ answered }) => answered?.()))
    } catch (cause) {
      this.#each(({ failed }) => failed?.(cause))
      throw cause
    }
  }

  apply(event: WatchEvent): boolean {
    return this.#collection.apply(event)
  }

  relist(): void {
    this.#collection.relist()
  }

  #each(tell: (reading: Reading<unknown>) => void): void {
    for (const { reading } of this.#readers) tell(reading)
  }

  #changed(key: string, now: readonly Made[] = [], before: readonly Made[] = []): void {
    for (const [i, { reading, seen }] of this.#readers.entries()) {
      const [is, was] = [now[i], before[i]]
      if (Bun.deepEquals(is?.value, was?.value) && is?.refused === was?.refused) continue
      if (is?.refused === undefined) seen.refused.delete(key)
      else seen.refused.set(key, is.refused)
      if (is?.value === undefined) seen.items.delete(key)
      else seen.items.set(key, is.value)
      reading.changed(key, is?.value, was?.value)
    }
  }
}

interface Seen {
  readonly items: Map<string, unknown>
  readonly refused: Map<string, string>
}

function madeOf({ project }: Reading<unknown>, raw: unknown): Made {
  try {
    const value = project(raw)
    const leftOut = (value as { leftOut?: readonly string[] } | undefined)?.leftOut
    return { value, ...(leftOut && { refused: leftOut.join('; ') }) }
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    return { refused: cause.message }
  }
}
