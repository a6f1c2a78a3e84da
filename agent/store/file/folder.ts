import { type BigIntStats, closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs'

/** What a file says: its text, or why it has none to be read; and when it was written, in milliseconds since 1970. */
export interface Found {
  readonly text: string
  readonly why?: string
  readonly writtenMs: number
}

/** The files of a folder, each read when it is another than before; names that begin with a dot are drafts. All methods throw Error for a disk that fails; a folder that is not there is empty. */
export class Folder<T> {
  readonly #dir: string
  readonly #parse: (found: Found, name: string) => T
  readonly #known = new Map<string, { readonly stamp: string; readonly value: T }>()
  #stamp = ''
  /** How many changes were seen. */
  version = 0

  /** `parse` throws nothing; `writtenMs` is the file's time, in milliseconds since 1970. */
  constructor(dir: string, parse: (found: Found, name: string) => T) {
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
    const found = stats && find(path, Number(stats.mtimeMs))
    if (stamp === undefined || found === undefined) this.#drop(name)
    else {
      this.#known.set(name, { stamp, value: this.#parse(found, name) })
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

/** A file's text; undefined when there is none, or a folder in its place. Throws OddFileError, and Error for a disk that fails. */
export function read(path: string): string | undefined {
  return present(() => {
    // A FIFO without a writer would hold up whoever opens it.
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const stats = fstatSync(fd)
      if (!stats.isFile() && !stats.isDirectory()) throw new OddFileError(path, stats.isFIFO() ? 'a FIFO' : 'a device')
      return readFileSync(fd, 'utf8')
    } finally {
      closeSync(fd)
    }
  })
}

/** It is no regular file. */
class OddFileError extends Error {
  // A failure of the folder, as of a disk.
  readonly code = 'EINVAL'
  readonly what: string
  constructor(path: string, what: string) {
    super(`${path} is ${what}; want a regular file`)
    this.what = what
  }
}

function find(path: string, writtenMs: number): Found | undefined {
  try {
    const text = read(path)
    return text === undefined ? undefined : { text, writtenMs }
  } catch (cause) {
    // What the kernel says of a socket that is opened.
    const what = cause instanceof OddFileError ? cause.what : (cause as NodeJS.ErrnoException).code === 'ENXIO' && 'a socket'
    if (what) return { text: '', why: `it is ${what}; want a regular file`, writtenMs }
    throw cause
  }
}

/** The names in a folder; none when it is not there. */
export function list(dir: string): readonly string[] {
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
