import { ValueError } from '../../lib/text/errors.ts'
import { type Patience, type Source, UnavailableError } from '../scheduler/follow.ts'
import { type Api, ApiError, type Query, type WatchEvent } from './api.ts'

/** Objects of one kind, and what of them is kept. */
export interface Kind<T> {
  /** `/api/v1/nodes`. */
  readonly path: string
  /** Which of them: `fieldSelector`, `labelSelector`. */
  readonly query?: Query
  /** What is kept of an object: slim, for the object itself is dropped. Undefined for one that does not matter. Throws ValueError for one that cannot be read. */
  project(raw: unknown): T | undefined
}

/** What changed: the key of an object (`namespace/name`, or `name`), and what is kept of it now; undefined when it is gone, does not matter any more, or cannot be read. */
export type Changed<T> = (key: string, now: T | undefined, before: T | undefined) => void

/** A server that is away is asked again within five seconds of its return. Bookmarks come about once a minute. */
export const PATIENCE: Patience = { leastMs: 100, mostMs: 4000, idleMs: 90_000 }

/** The objects of one kind, kept up to date by `follow`. What is known stays while the server is away, and a list takes the place of what was known one by one: nothing that still stands is forgotten for a moment. */
export class Collection<T> implements Source<string, WatchEvent> {
  readonly #api: Api
  readonly #kind: Kind<T>
  readonly #changed: Changed<T>
  readonly #items = new Map<string, T>()
  readonly #refused = new Map<string, string>()
  #resourceVersion: string | undefined
  #isListed = false

  /** `changed` is called for each object that is otherwise than before: a heartbeat that changes nothing of what is kept is none. */
  constructor(api: Api, kind: Kind<T>, changed: Changed<T> = () => {}) {
    this.#api = api
    this.#kind = kind
    this.#changed = changed
  }

  /** By key. */
  get items(): ReadonlyMap<string, T> {
    return this.#items
  }

  /** Objects that cannot be read, by key, and why. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused
  }

  /** Whether the server has told all there is, once. */
  get isListed(): boolean {
    return this.#isListed
  }

  /** The resource version up to which everything is known. */
  known(): string | undefined {
    return this.#resourceVersion
  }

  /** Lists everything, and takes over what differs. Throws UnavailableError. */
  async list(signal: AbortSignal): Promise<void> {
    const seen = new Set<string>()
    let resourceVersion = ''
    for await (const page of this.#api.list(this.#kind.path, this.#kind.query ?? {}, signal)) {
      for (const raw of page.items) {
        const key = keyOf(raw)
        if (key === undefined) continue
        seen.add(key)
        this.#put(key, raw)
      }
      resourceVersion = page.resourceVersion
    }
    for (const key of [...this.#items.keys(), ...this.#refused.keys()]) if (!seen.has(key)) this.#drop(key)
    this.#resourceVersion = resourceVersion
    this.#isListed = true
  }

  /** One watch. */
  async *watch(after: string, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    try {
      yield* this.#api.watch(this.#kind.path, this.#kind.query ?? {}, after, signal)
    } catch (cause) {
      // As a status, and not as an event of the stream.
      if (cause instanceof ApiError && cause.status === 410) this.#resourceVersion = undefined
      throw cause
    }
  }

  /** Takes over one event. False when the server no longer has all changes since the last one (410 Gone). Throws UnavailableError for another error in the stream. */
  apply({ type, object }: WatchEvent): boolean {
    if (type === 'ERROR') {
      const { code, message } = (object ?? {}) as { code?: unknown; message?: unknown }
      this.#resourceVersion = undefined
      if (code === 410) return false
      throw new UnavailableError(`The watch of ${this.#kind.path} ended with an error: ${String(message ?? code)}`)
    }
    const version = versionOf(object)
    const key = keyOf(object)
    if (key !== undefined && type === 'DELETED') this.#drop(key)
    else if (key !== undefined && (type === 'ADDED' || type === 'MODIFIED')) this.#put(key, object)
    if (version !== undefined) this.#resourceVersion = version
    return true
  }

  #put(key: string, raw: unknown): void {
    const [before, refusedBefore] = [this.#items.get(key), this.#refused.get(key)]
    const { now, refused } = this.#read(raw)
    if (refused === undefined) this.#refused.delete(key)
    else this.#refused.set(key, refused)
    if (now !== undefined && before !== undefined && Bun.deepEquals(before, now)) return
    if (now === undefined) this.#items.delete(key)
    else this.#items.set(key, now)
    if (now !== undefined || before !== undefined || refused !== refusedBefore) this.#changed(key, now, before)
  }

  #read(raw: unknown): { readonly now?: T | undefined; readonly refused?: string } {
    try {
      return { now: this.#kind.project(raw) }
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      return { refused: cause.message }
    }
  }

  #drop(key: string): void {
    const before = this.#items.get(key)
    const wasRefused = this.#refused.delete(key)
    if (this.#items.delete(key) || wasRefused) this.#changed(key, undefined, before)
  }
}

interface Meta {
  readonly metadata?: { readonly name?: unknown; readonly namespace?: unknown; readonly resourceVersion?: unknown }
}

function keyOf(raw: unknown): string | undefined {
  const { name, namespace } = (raw as Meta | null)?.metadata ?? {}
  if (typeof name !== 'string' || name === '') return undefined
  return typeof namespace === 'string' && namespace !== '' ? `${namespace}/${name}` : name
}

function versionOf(raw: unknown): string | undefined {
  const { resourceVersion } = (raw as Meta | null)?.metadata ?? {}
  return typeof resourceVersion === 'string' && resourceVersion !== '' ? resourceVersion : undefined
}
