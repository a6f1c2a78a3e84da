import { ValueError } from '../../lib/text/errors.ts'
import { type Backoff, type Source, UnavailableError } from '../scheduler/follow.ts'
import { type Api, ApiError, type Query, type WatchEvent } from './api.ts'
import { type Custom, servedPath, UnservedError } from './served.ts'

/** Objects of one kind, and the data that is kept of each. */
export interface Kind<T> {
  /** `/api/v1/nodes`. */
  readonly path: string
  /** The selection: `fieldSelector`, `labelSelector`. */
  readonly query?: Query
  /** The API may lack the kind, or serve it in another version. Then `path` is only the usual place. */
  readonly custom?: Custom
  /**
   * The small value that is kept of an object. The object itself is dropped. Returns undefined for an irrelevant
   * object. Throws ValueError for an unreadable object.
   */
  project(raw: unknown): T | undefined
  /** What stands for an unreadable object that was not known before. With it, one that was known stays as it was. */
  unreadable?(raw: unknown): T | undefined
}

/**
 * Called for a change. The key of an object is `namespace/name`, or `name`. `now` is its kept value. It is undefined
 * when the object is gone, no longer relevant, or unreadable.
 */
export type Changed<T> = (key: string, now: T | undefined, before: T | undefined) => void

/**
 * Waits between attempts. A server that was away is asked again within five seconds of its return. Bookmarks come about
 * once a minute.
 */
export const PATIENCE: Backoff = { leastMs: 100, mostMs: 4000, idleMs: 90_000 }

/**
 * The objects of one kind, kept up to date by `follow`. Known objects stay while the server is away. A list updates
 * them one by one, so that no valid object is missing, not even for a moment.
 */
export class Collection<T> implements Source<string, WatchEvent> {
  readonly #api: Api
  readonly #kind: Kind<T>
  readonly #changed: Changed<T>
  readonly #items = new Map<string, T>()
  readonly #refused = new Map<string, string>()
  #resourceVersion: string | undefined
  #isListed = false
  #path: string
  /** The API has served the kind in this life of the agent. */
  #wasServed = false

  /**
   * `changed` is called for each object whose kept value changes. A heartbeat that leaves the kept value as it is does
   * not count.
   */
  constructor(api: Api, kind: Kind<T>, changed: Changed<T> = () => {}) {
    this.#api = api
    this.#kind = kind
    this.#changed = changed
    this.#path = kind.path
  }

  /** The kept values, by key. */
  get items(): ReadonlyMap<string, T> {
    return this.#items
  }

  /** The reasons why objects are unreadable, by key. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused
  }

  /** Whether the server has sent a complete list at least once. */
  get isListed(): boolean {
    return this.#isListed
  }

  /** The resource version up to which all objects are known. Undefined when a list is needed. */
  known(): string | undefined {
    return this.#resourceVersion
  }

  /**
   * Lists all objects and applies the differences. Throws UnavailableError: UnservedError when the API does not serve
   * the kind in a known version. Its objects end only when the cluster does not have the kind.
   */
  async list(signal: AbortSignal): Promise<void> {
    await this.#find(signal)
    const seen = new Set<string>()
    let resourceVersion: string | undefined
    for await (const page of this.#api.list(this.#path, this.#kind.query ?? {}, signal)) {
      for (const raw of page.items) {
        const key = keyOf(raw)
        if (key === undefined) continue
        seen.add(key)
        this.#put(key, raw)
      }
      resourceVersion = page.resourceVersion
    }
    this.#listed(seen, resourceVersion)
  }

  async #find(signal: AbortSignal): Promise<void> {
    const { custom } = this.#kind
    if (!custom) return
    // The refusal of an earlier place says nothing about the next one.
    this.#api.forget(this.#path)
    try {
      this.#path = await servedPath(this.#api, custom, this.#wasServed, signal)
      this.#wasServed = true
    } catch (cause) {
      if (!(cause instanceof UnservedError && cause.isAbsent)) throw cause
      this.#wasServed = false
      this.#listed(new Set(), undefined)
      throw cause
    }
  }

  #listed(seen: ReadonlySet<string>, resourceVersion: string | undefined): void {
    for (const key of [...this.#items.keys(), ...this.#refused.keys()]) if (!seen.has(key)) this.#drop(key)
    this.#resourceVersion = resourceVersion
    this.#isListed = true
  }

  /** One watch. `opened` is called when the server has accepted it. */
  async *watch(after: string, signal: AbortSignal, opened?: () => void): AsyncGenerator<WatchEvent> {
    try {
      yield* this.#api.watch(this.#path, this.#kind.query ?? {}, after, signal, opened)
    } catch (cause) {
      // The server may report 410 as an HTTP status instead of an event in the stream. With 404 the kind has moved.
      if (cause instanceof ApiError && (cause.status === 410 || cause.status === 404)) this.#resourceVersion = undefined
      throw cause
    }
  }

  /** Has everything listed again. */
  relist(): void {
    this.#resourceVersion = undefined
  }

  /**
   * Applies one event. Returns false when the server no longer has all changes since the last event (410 Gone). Throws
   * UnavailableError for another error in the stream.
   */
  apply({ type, object }: WatchEvent): boolean {
    if (type === 'ERROR') {
      const { code, message } = (object ?? {}) as { code?: unknown; message?: unknown }
      this.#resourceVersion = undefined
      if (code === 410) return false
      throw new UnavailableError(`The watch of ${this.#path} ended with an error: ${String(message ?? code)}`)
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
    const { now, refused } = this.#read(raw, before)
    if (refused === undefined) this.#refused.delete(key)
    else this.#refused.set(key, refused)
    if (now !== undefined && before !== undefined && Bun.deepEquals(before, now)) return
    if (now === undefined) this.#items.delete(key)
    else this.#items.set(key, now)
    if (now !== undefined || before !== undefined || refused !== refusedBefore) this.#changed(key, now, before)
  }

  // An object that becomes unreadable stays as it was.
  #read(raw: unknown, before: T | undefined): { readonly now?: T | undefined; readonly refused?: string } {
    try {
      const now = this.#kind.project(raw)
      const leftOut = (now as { leftOut?: readonly string[] } | undefined)?.leftOut
      return leftOut ? { now, refused: leftOut.join('; ') } : { now }
    } catch (cause) {
      if (!(cause instanceof ValueError)) throw cause
      return { now: this.#kind.unreadable && (before ?? this.#kind.unreadable(raw)), refused: cause.message }
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
