import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
} from 'node:fs'

/**
 * The content of a file. `why` is the reason when the file is unreadable. `writtenMs` is the time of writing, in
 * milliseconds since
 * 1970.
 */
export interface FolderFile {
  readonly text: string
  readonly why?: string
  readonly writtenMs: number
}

/**
 * The files of a folder. Reads a file only after it has changed. Names that begin with a dot are drafts and are
 * skipped. All methods throw Error when the disk fails. A missing folder counts as empty.
 */
export class Folder<T> {
  readonly #dir: string
  readonly #parse: (found: FolderFile, name: string) => T
  readonly #known = new Map<string, { readonly stamp: string; readonly value: T }>()
  #stamp = ''
  /** Number of changes seen so far. */
  version = 0

  /** `parse` must not throw. */
  constructor(dir: string, parse: (found: FolderFile, name: string) => T) {
    this.#dir = dir
    this.#parse = parse
  }

  /** Looks at all files, or only at the named files. */
  look(names?: Iterable<string>): void {
    // Takes the stamp of the folder before it reads the files. A later change is read here or changes the stamp again.
    if (!names) this.#stamp = this.#now()
    const there = new Set(names ?? list(this.#dir))
    for (const name of there) this.#see(name)
    if (!names) for (const name of [...this.#known.keys()]) if (!there.has(name)) this.#drop(name)
  }

  /**
   * Whether a file was made, replaced or removed since the last full look. The modification time of the folder shows
   * this, even for changes by another machine.
   */
  isStale(): boolean {
    return this.#now() !== this.#stamp
  }

  /** The parsed content of each file, with its name. */
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

/** The stat data of a file or folder. Undefined when it does not exist. */
export function status(path: string): BigIntStats | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

/**
 * The text of a file. Undefined when there is no file, or when the path is a folder. Throws OddFileError, and Error
 * when the disk fails.
 */
export function read(path: string): string | undefined {
  return present(() => {
    // Without O_NONBLOCK, the open of a FIFO without a writer blocks.
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

/** The path is not a regular file. */
class OddFileError extends Error {
  // The store handles errors with a code as failures of the folder, like those of a disk.
  readonly code = 'EINVAL'
  readonly what: string
  constructor(path: string, what: string) {
    super(`${path} is ${what}; want a regular file`)
    this.what = what
  }
}

function find(path: string, writtenMs: number): FolderFile | undefined {
  try {
    const text = read(path)
    return text === undefined ? undefined : { text, writtenMs }
  } catch (cause) {
    // The kernel answers ENXIO to the open of a socket.
    const what =
      cause instanceof OddFileError ? cause.what : (cause as NodeJS.ErrnoException).code === 'ENXIO' && 'a socket'
    if (what) return { text: '', why: `it is ${what}; want a regular file`, writtenMs }
    throw cause
  }
}

/** The names in a folder. Empty when the folder does not exist. */
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

// A replaced file has another inode. A file written in place has another modification time.
function stampOf({ ino, mtimeNs, size }: BigIntStats): string {
  return `${ino}-${mtimeNs}-${size}`
}
