import type { KindName } from './kinds.ts'

/** The keys of changed objects, by kind. */
export type ChangedKeys = ReadonlyMap<KindName, ReadonlySet<string>>

/**
 * The changes that one part of the agent has not seen yet. A key says only that an object changed: its value is read
 * when the part works.
 */
export class Changes {
  readonly kinds: readonly KindName[]
  readonly #notify: () => void
  #keys = new Map<KindName, Set<string>>()

  /** `notify` is called after each change of an object of these kinds. */
  constructor(kinds: readonly KindName[], notify: () => void) {
    this.kinds = kinds
    this.#notify = notify
  }

  /** Notes a change. Without a key, it only triggers the part. */
  note(kind: KindName, key?: string): void {
    if (key !== undefined) {
      const keys = this.#keys.get(kind) ?? new Set()
      this.#keys.set(kind, keys.add(key))
    }
    this.#notify()
  }

  /** Gives the changes since the last call, and forgets them. */
  take(): ChangedKeys {
    const keys = this.#keys
    this.#keys = new Map()
    return keys
  }
}
