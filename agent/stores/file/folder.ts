import { type BigIntStats, readdirSync, readFileSync, statSync } from 'node:fs'

/** The files of a folder, each read when it is another than before; names that begin with a dot are drafts. All methods throw Error for a disk that fails; a folder that is not there is empty. */
export class Folder<T> {
  readonly #dir: string
  readonly #parse: (text: string, name: string) => T
  readonly #known = new Map<string, { readonly stamp: string; readonly value: T }>()
  #stamp = ''
  /** How many changes were seen. */
  version = 0

  /** `parse` throws nothing. */
  constructor(dir: string, parse: (text: string, name: string) => T) {
    this.#dir = dir
    this.#parse = parse
  }

  /** Looks at all files, or at these. */
  look(names?: Iterable<string>): void {
    // Taken before the files: what comes after it is seen, or makes the folder another.
    if (!names) this.#stamp = this.#now()
    const there = new Set(names ?? list(this.#dir))
    for (const name of there) this.#see(name)
    if (!names) for (const name of [...this.#known.keys()]) if (!there.has(name)) this.#drop(name)
  }

  /** Whether a file was made, replaced or removed since the last look at all: the folder's own time tells, also of what another machine did. */
  isStale(): boolean {
    return this.#now() !== this.#stamp
  }

  /** What each file holds, by its name. */
  entries(): readonly (readonly [name: string, value: T])[] {
    return [...this.#known].map(([name, { value }]) => [name, value])
  }

  #see(name: string): void {
    if (name.startsWith('.')) return
    const path = `${this.#dir}/${name}`
    const stats = status(path)
    const stamp = stats && stampOf(stats)
    if (stamp !== undefined && stamp === this.#known.get(name)?.stamp) return
    const text = stamp === undefined ? undefined : read(path)
    if (stamp === undefined || text === undefined) this.#drop(name)
    else {
      this.#known.set(name, { stamp, value: this.#parse(text, name) })
      this.version++
    }
  }

  #drop(name: string): void {
    if (this.#known.delete(name)) this.version++
  }

  #now(): string {
    const stats = status(this.#dir)
    return stats ? stampOf(stats) : ''
  }
}

/** A file's or a folder's numbers; undefined when there is none. */
export function status(path: string): BigIntStats | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

/** A file's text; undefined when there is none, or a folder in its place. */
export function read(path: string): string | undefined {
  return present(() => readFileSync(path, 'utf8'))
}

function list(dir: string): readonly string[] {
  return present(() => readdirSync(dir)) ?? []
}

function present<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch (cause) {
    if (/^(ENOENT|EISDIR)$/.test((cause as NodeJS.ErrnoException).code ?? '')) return undefined
    throw cause
  }
}

// Another inode where it was replaced, another time where it was written to.
function stampOf({ ino, mtimeNs, size }: BigIntStats): string {
  return `${ino}-${mtimeNs}-${size}`
}
