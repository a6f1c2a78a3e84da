import { fs } from './fs.ts'
import { flock } from './libc.ts'

let serial = 0

/** Runs `work` while this process holds the flock of a file, made (0600: who may open it may hold it; with its folders 0755) when absent. The lock ends with the process. With `wait: false` it throws Error with code EWOULDBLOCK when another holds it. */
export function withLock<T>(path: string, work: () => T, { wait = true } = {}): T {
  const fd = within(path, () => fs.openSync(path, 'a', 0o600))
  try {
    if (!flock(fd, { wait })) throw Object.assign(new Error(`${path} is locked by another process`), { code: 'EWOULDBLOCK' })
    return work()
  } finally {
    fs.closeSync(fd)
  }
}

/** Takes the flock of a file, made as by `withLock`, until what is returned is called or the process ends; undefined when another has it. */
export function takeLock(path: string): (() => void) | undefined {
  const fd = within(path, () => fs.openSync(path, 'a', 0o600))
  if (flock(fd, { wait: false })) return () => fs.closeSync(fd)
  fs.closeSync(fd)
  return undefined
}

/** Replaces a file so that a reader, or a power loss, finds the old text or the new one, never less. `durable: false` leaves the disk out of it: for what can be rebuilt. `by` is the draft's path when a lock makes one enough: a killed writer then leaves one draft, not one more each time. */
export function writeAtomic(path: string, text: string, { mode = 0o600, durable = true, by = ownDraftOf(path) } = {}): void {
  const draft = drafted(by, text, mode, durable)
  try {
    within(path, () => fs.renameSync(draft, path))
  } catch (cause) {
    remove(draft)
    throw cause
  }
}

/** Makes files of one text that appear whole or not at all (link(2)); false, and none made, when one of them exists. One fsync for all of them. `by` as for writeAtomic. */
export function createOnce(paths: readonly string[], text: string, { mode = 0o600, by = ownDraftOf(paths[0] ?? '') } = {}): boolean {
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
    remove(draft)
  }
}

/** Makes an empty file; false when it is there already. */
export function createMark(path: string): boolean {
  try {
    fs.closeSync(within(path, () => fs.openSync(path, 'wx', 0o600)))
    return true
  } catch (cause) {
    if (absentOr(cause, 'EEXIST')) return false
    throw cause
  }
}

// There is no such file, and none can be: below a file, or by a name that is too long.
const NOWHERE = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'] as const

/** Removes a file; one that is not there is no error. */
export function remove(path: string): void {
  try {
    fs.unlinkSync(path)
  } catch (cause) {
    // A read-only file system refuses before it looks.
    if (!NOWHERE.some((code) => absentOr(cause, code)) && !(absentOr(cause, 'EROFS') && !fs.existsSync(path))) throw cause
  }
}

// The draft's name begins with "." so that no reader of the directory takes it for an address or a configuration.
function ownDraftOf(path: string): string {
  return `${fs.dirname(path)}/.${process.pid}-${serial++}.draft`
}

function drafted(draft: string, text: string, mode: number, durable: boolean): string {
  const fd = within(draft, () => openAnew(draft, mode))
  try {
    fs.writeAllSync(fd, text)
    if (durable) fs.fsyncSync(fd)
  } catch (cause) {
    remove(draft)
    // write(2) knows no name: a full disk is to be told with what was written to it.
    throw Object.assign(cause as Error, { path: draft })
  } finally {
    fs.closeSync(fd)
  }
  return draft
}

// A draft that a killed process left is unlinked, never written to: it may be the same inode as a file that was made of it.
function openAnew(draft: string, mode: number): number {
  try {
    return fs.openSync(draft, 'wx', mode)
  } catch (cause) {
    if (!absentOr(cause, 'EEXIST')) throw cause
    remove(draft)
    return fs.openSync(draft, 'wx', mode)
  }
}

// Folders are made only when a first try shows that they are missing: the usual call does no extra work.
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

/** Writes a text into a folder and keeps nothing of it: whether there is room. Throws as the kernel refuses. */
export function writeUnnamed(dir: string, text: string): void {
  const fd = fs.openSync(dir, 'unnamed', 0o600)
  try {
    fs.writeAllSync(fd, text)
  } finally {
    fs.closeSync(fd)
  }
}

/** Where the draft of a file lies that one writer at a time writes: beside it, by a name that begins with a dot, so that no reader of the folder takes it for one of its own. Whoever removes the file for good removes this too, for a kill leaves it. */
export function draftOf(path: string): string {
  return path.replace(/[^/]*$/, '.$&.draft')
}
