import { pid } from './door.ts'
import { fs } from './fs.ts'
import { flock } from './libc.ts'
import { log } from './log.ts'

let serial = 0

/**
 * Runs `work` while this process holds the flock of a file. Makes the file with mode 0600 when it is absent, because
 * each user who may open it may hold the lock. Makes missing folders with mode 0755. The lock ends with the process.
 * With `wait: false` throws Error with code EWOULDBLOCK when another process holds the lock.
 */
export function withLock<T>(path: string, work: () => T, { wait = true } = {}): T {
  const fd = openLock(path)
  try {
    if (!flock(fd, { wait }))
      throw Object.assign(new Error(`${path} is locked by another process`), { code: 'EWOULDBLOCK' })
    return work()
  } finally {
    fs.closeSync(fd)
  }
}

/**
 * Takes the flock of a file, which is made as by `withLock`. Returns a function that releases the lock. The lock also
 * ends with the process. Undefined when another process holds the lock.
 */
export function takeLock(path: string): (() => void) | undefined {
  const fd = openLock(path)
  if (flock(fd, { wait: false })) return () => fs.closeSync(fd)
  fs.closeSync(fd)
  return undefined
}

// A read-only disk has nothing to write, but what it holds can be read, and a CHECK or a DEL may need no more.
function openLock(path: string): number {
  try {
    return within(path, () => fs.openSync(path, 'a', 0o600))
  } catch (cause) {
    if (!absentOr(cause, 'EROFS') || !fs.existsSync(path)) throw cause
    return fs.openSync(path, 'r')
  }
}

/**
 * Replaces a file atomically. A reader finds the old text or the whole new text, also after a power loss. `durable:
 * false` skips fsync, for files that can be rebuilt. `by` is the path of the draft, for callers that hold a lock and
 * need only one draft. A killed writer then leaves one draft instead of one more each time.
 */
export function writeAtomic(
  path: string,
  text: string | Uint8Array,
  { mode = 0o600, durable = true, by = ownDraftOf(path) } = {},
): void {
  const draft = drafted(by, text, mode, durable)
  try {
    within(path, () => fs.renameSync(draft, path))
  } catch (cause) {
    remove(draft)
    throw cause
  }
}

/**
 * Makes several files with the same text. Each file appears complete or not at all (link(2)). When one of them exists,
 * makes none and returns false. One fsync serves all files. `by` works as in writeAtomic.
 */
export function createOnce(
  paths: readonly string[],
  text: string,
  { mode = 0o600, by = ownDraftOf(paths[0] ?? '') } = {},
): boolean {
  if (paths.length === 0) return true
  const draft = drafted(by, text, mode, true)
  const made: string[] = []
  try {
    for (const path of paths) {
      fs.linkSync(draft, path)
      made.push(path)
    }
    return true
  } catch (cause) {
    for (const path of made) remove(path)
    if (absentOr(cause, 'EEXIST')) return false
    throw cause
  } finally {
    // The next call replaces a draft that the disk does not let go.
    ifDiskAllows(`Cannot remove ${draft}`, () => remove(draft))
  }
}

/** Makes an empty file. Returns false when it exists. */
export function createMark(path: string): boolean {
  try {
    fs.closeSync(within(path, () => fs.openSync(path, 'wx', 0o600)))
    return true
  } catch (cause) {
    if (absentOr(cause, 'EEXIST')) return false
    throw cause
  }
}

// These errors mean that there is no such file. With the last two there can be none: a parent is a file, or the name is
// too long.
const NOWHERE = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'] as const

/** Removes a file. A missing file is no error. */
export function remove(path: string): void {
  try {
    fs.unlinkSync(path)
  } catch (cause) {
    // A read-only file system reports EROFS without looking for the file.
    if (!NOWHERE.some((code) => absentOr(cause, code)) && !(absentOr(cause, 'EROFS') && !fs.existsSync(path)))
      throw cause
  }
}

/**
 * Runs work on a record that a removal can do without. When the disk refuses it, logs `fact` with the reason and
 * returns. Throws every other failure.
 */
export function ifDiskAllows(fact: string, work: () => void): void {
  try {
    work()
  } catch (cause) {
    if (typeof (cause as NodeJS.ErrnoException).errno !== 'number') throw cause
    log(`plumb: ${fact}: ${(cause as Error).message}`)
  }
}

/** Removes a folder unless something is in it. A folder that does not exist is no error. Throws CniError 5. */
export function removeEmpty(dir: string): void {
  try {
    fs.rmdirSync(dir)
  } catch (cause) {
    if (!absentOr(cause, 'ENOENT') && !absentOr(cause, 'ENOTEMPTY')) throw cause
  }
}

// The draft's name begins with "." so that no reader of the directory reads it as an address or a configuration. It has
// the time, because processes of other PID namespaces have the same numbers.
function ownDraftOf(path: string): string {
  return `${fs.dirname(path)}/.${pid()}-${Date.now()}${serial++}.draft`
}

function drafted(draft: string, text: string | Uint8Array, mode: number, durable: boolean): string {
  const fd = within(draft, () => openAnew(draft, mode))
  try {
    fs.writeAllSync(fd, text)
    if (durable) fs.fsyncSync(fd)
  } catch (cause) {
    remove(draft)
    // The error of write(2) has no path. The user must learn which file the full disk refused.
    throw Object.assign(cause as Error, { path: draft })
  } finally {
    fs.closeSync(fd)
  }
  return draft
}

// A killed process may have left this draft. It is unlinked and not rewritten, because a finished file may share its
// inode (link(2)).
function openAnew(draft: string, mode: number): number {
  try {
    return fs.openSync(draft, 'wx', mode)
  } catch (cause) {
    if (!absentOr(cause, 'EEXIST')) throw cause
    remove(draft)
    return fs.openSync(draft, 'wx', mode)
  }
}

// The folders are made only after the first try fails. The usual call then does no extra work.
function within<T>(path: string, open: () => T): T {
  try {
    return open()
  } catch (cause) {
    if (!absentOr(cause, 'ENOENT')) throw cause
    fs.mkdirSync(fs.dirname(path), 0o755)
    return open()
  }
}

function absentOr(cause: unknown, code: string): boolean {
  return (cause as NodeJS.ErrnoException).code === code
}

// What the files of some attachments take, in bytes.
const ROOM = 32 * 1024
// The file system has no files without a name (open(2), O_TMPFILE).
const UNKNOWN: readonly (string | undefined)[] = ['ENOTSUP', 'EISDIR', 'ENOSYS']

/**
 * Requires that a folder takes files, or the nearest folder above it while it does not exist. It writes a file without
 * a name, which disappears also when this process is killed. Throws the kernel's error, such as ENOSPC. A file system
 * that cannot be asked in this way passes.
 */
export function requireRoom(dir: string): void {
  try {
    const fd = fs.openSync(nearest(dir), 'unnamed', 0o600)
    try {
      fs.writeAllSync(fd, new Uint8Array(ROOM))
    } finally {
      fs.closeSync(fd)
    }
  } catch (cause) {
    if (!UNKNOWN.includes((cause as NodeJS.ErrnoException).code)) throw cause
  }
}

/** The folder itself, or the nearest one above it that exists. */
export function nearest(dir: string): string {
  return dir === '/' || fs.existsSync(dir) ? dir : nearest(fs.dirname(dir))
}

/**
 * The path of a file's draft, for files with one writer at a time. The draft lies beside the file. Its name begins with
 * a dot, so that no reader of the folder reads it as a normal file. The program that removes the file for good must
 * also remove the draft, because a killed writer leaves it.
 */
export function draftOf(path: string): string {
  return path.replace(/[^/]*$/, '.$&.draft')
}
