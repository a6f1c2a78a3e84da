import { errno, isArm, libc } from './door.ts'
import { bytes, lastError } from './libc.ts'

// asm-generic/fcntl.h. These values are the same on x86-64 and arm64.
const [O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_APPEND, O_CLOEXEC, O_PATH] = [1, 2, 0x40, 0x80, 0x400, 0x80000, 0x200000]
// arm64 has a different O_DIRECTORY (fcntl.h).
const O_DIRECTORY = isArm ? 0o40000 : 0o200000
const O_TMPFILE = 0o20000000 | O_DIRECTORY
// As in node:fs, except that `w` does not empty the file. `unnamed` is a file in a folder that disappears when closed.
const FLAGS = {
  r: 0,
  'r+': O_RDWR,
  w: O_WRONLY | O_CREAT,
  wx: O_WRONLY | O_CREAT | O_EXCL,
  a: O_WRONLY | O_CREAT | O_APPEND,
  unnamed: O_WRONLY | O_TMPFILE,
} as const
const AT_FDCWD = -100
const [S_IFMT, S_IFREG, S_IFDIR] = [0o170000, 0o100000, 0o040000]
// The size of struct statx (linux/stat.h) and the offsets of the fields that are read.
const [STATX_BASIC, STATX_BYTES, MODE, INO, SIZE, MTIME, DEV] = [0x7ff, 256, 28, 32, 40, 112, 136]
// The offsets of the record length and of the name in struct linux_dirent64 (getdents(2)).
const [RECORD, NAME] = [16, 19]
const [SOME, PATH_MAX, STATFS_BYTES] = [16_384, 4096, 128]
const SEEK_END = 2
const [POLLIN, POLLOUT] = [1, 4]
// ENOENT: there is no such file. ENOTDIR, ENAMETOOLONG and ELOOP: there can be none.
const ABSENT = [2, 20, 36, 40]

let decoder: TextDecoder | undefined
// All reads share one buffer. A new buffer of 16 kB per read costs the kernel four pages that it has to find and clear.
let room: Uint8Array<ArrayBuffer> | undefined

/** The facts of a file from statx(2). */
export interface Stat {
  readonly kind: 'file' | 'folder' | 'other'
  readonly dev: bigint
  readonly ino: bigint
  /** Bytes. */
  readonly size: bigint
  readonly mtimeNs: bigint
}

/**
 * Files through libc, with the names and errors of `node:fs`. An error has `errno`, `code`, `syscall` and `path`. No
 * call is repeated: a second close or fsync could succeed although data is lost.
 */
export const fs = {
  openSync(path: string, flag: keyof typeof FLAGS, mode = 0o666): number {
    const fd = libc().open(c(path), FLAGS[flag] | O_CLOEXEC, mode)
    return fd >= 0 ? fd : fail('open', path)
  },
  closeSync(fd: number): void {
    if (libc().close(fd) !== 0) fail('close')
  },
  fsyncSync(fd: number): void {
    if (libc().fsync(fd) !== 0) fail('fsync')
  },
  /**
   * Reads at the current offset, or at `from`. Returns the number of bytes. Waits also on a descriptor that does not
   * block (O_NONBLOCK): a runtime may give such a pipe as stdin.
   */
  readSync(fd: number, into: Uint8Array, from?: number): number {
    for (;;) {
      const count = Number(
        from === undefined ? libc().read(fd, into, into.length) : libc().pread(fd, into, into.length, from),
      )
      if (count >= 0) return count
      if (!isNotYet()) fail('read')
      untilReady(fd, POLLIN)
    }
  },
  /** Returns the number of bytes that were written. */
  writeSync(fd: number, text: Uint8Array, offset = 0): number {
    const rest = text.subarray(offset)
    const count = rest.length === 0 ? 0 : Number(libc().write(fd, rest, rest.length))
    return count >= 0 ? count : fail('write')
  },
  /** The whole text of a file. */
  readFileSync(path: string): string {
    const fd = fs.openSync(path, 'r')
    try {
      return fs.readAllSync(fd)
    } finally {
      fs.closeSync(fd)
    }
  },
  /**
   * The text of an open file up to its end, from the current offset or from `from`. `expected` is the expected number
   * of bytes plus one.
   */
  readAllSync(fd: number, from?: number, expected = SOME): string {
    room ??= new Uint8Array(SOME)
    let [text, done] = [expected > SOME ? new Uint8Array(expected) : room, 0]
    for (;;) {
      const count = fs.readSync(fd, text.subarray(done), from === undefined ? undefined : from + done)
      if (count === 0) return decoded(text.subarray(0, done))
      done += count
      if (done === text.length) text = twice(text)
    }
  },
  /**
   * The size of an open file in bytes. Moves the file offset to the end. Processes that inherited it continue there.
   */
  endSync(fd: number): number {
    const end = Number(libc().lseek(fd, 0, SEEK_END))
    if (end < 0) fail('lseek')
    return end
  },
  /** Writes the whole text, or all bytes, at the current offset. Returns the number of bytes. */
  writeAllSync(fd: number, text: string | Uint8Array): number {
    const all = typeof text === 'string' ? new TextEncoder().encode(text) : text
    for (let done = 0; done < all.length; ) done += fs.writeSync(fd, all, done)
    return all.length
  },
  /**
   * Replaces the content of a file in place. Truncates after the write, because ext4 writes a file that was emptied
   * first to the disk as soon as it is closed.
   */
  writeFileSync(path: string, text: string, mode: number): void {
    const fd = fs.openSync(path, 'w', mode)
    try {
      if (libc().ftruncate(fd, fs.writeAllSync(fd, text)) !== 0) fail('ftruncate')
    } finally {
      fs.closeSync(fd)
    }
  },
  /** Whether there is a file. Unlike `node:fs`, throws when the kernel does not say that there is none. */
  existsSync(path: string): boolean {
    if (path.includes('\0')) return false
    if (libc().access(bytes(path), 0) === 0) return true
    return ABSENT.includes(errno()) ? false : fail('access', path)
  },
  /** The facts of a file. Undefined when there is no such file. */
  statSync(path: string): Stat | undefined {
    const seen = new Uint8Array(STATX_BYTES)
    if (libc().statx(AT_FDCWD, c(path), 0, STATX_BASIC, seen) === 0) return statOf(new DataView(seen.buffer))
    return lastError().code === 'ENOENT' ? undefined : fail('stat', path)
  },
  /** The magic number of the file system that contains the file (statfs(2)). */
  statfsSync(path: string): number {
    const seen = new BigInt64Array(STATFS_BYTES / 8)
    return libc().statfs(c(path), seen) === 0 ? Number(seen[0]) : fail('statfs', path)
  },
  /** The names in a folder, unsorted. */
  readdirSync(path: string): string[] {
    // To open a pipe would wait until somebody writes to it.
    const fd = libc().open(c(path), O_CLOEXEC | O_DIRECTORY, 0)
    if (fd < 0) fail('scandir', path)
    try {
      const [names, some]: [string[], Uint8Array] = [[], new Uint8Array(SOME)]
      for (;;) {
        const count = Number(libc().getdents64(fd, some, some.length))
        if (count < 0) fail('scandir', path)
        if (count === 0) return names
        names.push(...namesIn(some.subarray(0, count)))
      }
    } finally {
      fs.closeSync(fd)
    }
  },
  /** The target as it is written in the link, at most 4095 bytes. */
  readlinkSync(path: string): string {
    const target = new Uint8Array(PATH_MAX)
    const count = Number(libc().readlink(c(path), target, PATH_MAX))
    return count >= 0 ? decoded(target.subarray(0, count)) : fail('readlink', path)
  },
  /** Makes a folder and its missing parents. An existing folder is no error. */
  mkdirSync(path: string, mode: number): void {
    if (libc().mkdir(c(path), mode) === 0) return
    const why = lastError()
    if (fs.existsSync(`${path}/`)) return
    if (why.code !== 'ENOENT' || path === '' || path === '/') throw failure(why, 'mkdir', path)
    fs.mkdirSync(fs.dirname(path), mode)
    // Another process may have made it meanwhile.
    const isMade = libc().mkdir(c(path), mode) === 0
    const now = lastError()
    if (!isMade && !fs.existsSync(`${path}/`)) throw failure(now, 'mkdir', path)
  },
  rmdirSync(path: string): void {
    if (libc().rmdir(c(path)) !== 0) fail('rmdir', path)
  },
  unlinkSync(path: string): void {
    if (libc().unlink(c(path)) !== 0) fail('unlink', path)
  },
  linkSync(from: string, to: string): void {
    if (libc().link(c(from), c(to)) !== 0) fail('link', from, to)
  },
  symlinkSync(target: string, path: string): void {
    if (libc().symlink(c(target), c(path)) !== 0) fail('symlink', target, path)
  },
  renameSync(from: string, to: string): void {
    if (libc().rename(c(from), c(to)) !== 0) fail('rename', from, to)
  },
  /** Sets access time and modification time of a file, in seconds. */
  utimesSync(path: string, at: number): void {
    const [seconds, nanoseconds] = [BigInt(Math.floor(at)), BigInt(Math.floor((at % 1) * 1e9))]
    const times = new BigInt64Array([seconds, nanoseconds, seconds, nanoseconds])
    if (libc().utimensat(AT_FDCWD, c(path), times, 0) !== 0) fail('utime', path)
  },
  /** As in `node:path`, for a path that does not end with a slash. */
  dirname(path: string): string {
    const at = path.lastIndexOf('/')
    return at < 0 ? '.' : path.slice(0, at) || '/'
  },
  /** The path without links and `..`. The kernel follows the links: the file is opened as a place only (O_PATH). */
  realpathSync(path: string): string {
    const fd = libc().open(c(path), O_PATH | O_CLOEXEC, 0)
    if (fd < 0) fail('lstat', path)
    try {
      return fs.readlinkSync(`/proc/self/fd/${fd}`)
    } finally {
      fs.closeSync(fd)
    }
  },
} as const

/** Waits until a descriptor takes bytes. */
export function untilWritable(fd: number): void {
  untilReady(fd, POLLOUT)
}

// struct pollfd: a descriptor, then the requested events in the lower half of a number.
function untilReady(fd: number, events: number): void {
  libc().poll(new Int32Array([fd, events]), 1n, -1)
}

function isNotYet(): boolean {
  return lastError().code === 'EAGAIN'
}

// C ends a path at the first null byte. The call would use a different path.
function c(path: string): Uint8Array {
  if (path.includes('\0'))
    throw Object.assign(new TypeError(`The path ${JSON.stringify(path)} holds a null byte`), {
      code: 'ERR_INVALID_ARG_VALUE',
    })
  return bytes(path)
}

// Throws what `node:fs` throws.
function fail(syscall: string, path?: string, to?: string): never {
  throw failure(lastError(), syscall, path, to)
}

function failure(
  { errno, code, meaning }: ReturnType<typeof lastError>,
  syscall: string,
  path?: string,
  to?: string,
): Error {
  const where = path === undefined ? '' : ` '${path}'${to === undefined ? '' : ` -> '${to}'`}`
  return Object.assign(new Error(`${code}: ${meaning}, ${syscall}${where}`), {
    errno,
    code,
    syscall,
    ...(path === undefined ? {} : { path }),
  })
}

function statOf(seen: DataView): Stat {
  const [word, half] = [(at: number) => seen.getBigUint64(at, true), (at: number) => BigInt(seen.getUint32(at, true))]
  const [major, minor] = [half(DEV), half(DEV + 4)]
  // One number in the form of makedev(3).
  const dev = ((major & ~0xfffn) << 32n) | ((major & 0xfffn) << 8n) | ((minor & ~0xffn) << 12n) | (minor & 0xffn)
  return {
    kind: kindOf(seen.getUint16(MODE, true)),
    dev,
    ino: word(INO),
    size: word(SIZE),
    mtimeNs: word(MTIME) * 1_000_000_000n + half(MTIME + 8),
  }
}

function kindOf(mode: number): Stat['kind'] {
  const format = mode & S_IFMT
  if (format === S_IFREG) return 'file'
  return format === S_IFDIR ? 'folder' : 'other'
}

function namesIn(entries: Uint8Array): string[] {
  const view = new DataView(entries.buffer, entries.byteOffset, entries.length)
  const names: string[] = []
  for (let at = 0; at < entries.length; at += view.getUint16(at + RECORD, true))
    names.push(decoded(entries.subarray(at + NAME, entries.indexOf(0, at + NAME))))
  return names.filter((name) => name !== '.' && name !== '..')
}

function twice(text: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const more = new Uint8Array(text.length * 2)
  more.set(text)
  return more
}

function decoded(text: Uint8Array): string {
  decoder ??= new TextDecoder('utf-8', { ignoreBOM: true })
  return decoder.decode(text)
}
