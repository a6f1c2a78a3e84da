import { closeSync, fchmodSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, renameSync, rmdirSync, type Stats, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { draftOf, remove } from '../../lib/os/files.ts'

// A write of a huge page's size is stored in a huge page of the page cache, when the file system supports it.
const CHUNK = 2 << 20

/**
 * Makes `to` the same program as `from`, in one step. An existing file at `to` is replaced. `linked` requests a hard link, which needs
 * one file system for both paths. Otherwise `to` is a copy that is on the disk before it gets its name.
 */
export function place(from: string, to: string, { linked }: { readonly linked: boolean }): void {
  const draft = draftOf(to)
  mkdirSync(dirname(to), { recursive: true, mode: 0o755 })
  remove(draft)
  if (!linked || !link(from, draft)) copy(from, draft)
  renameSync(draft, to)
}

/**
 * Keeps the file of a path also under the path `aside`, until `putBack`. Both paths must be on one file system. A file that `aside`
 * already has is replaced.
 */
export function setAside(path: string, aside: string): void {
  mkdirSync(dirname(aside), { recursive: true, mode: 0o755 })
  remove(aside)
  linkSync(path, aside)
}

/**
 * Moves the kept file back in one step, and removes its folder when the folder is empty. Also removes the draft that a killed `place`
 * left. Returns false when no file is kept.
 */
export function putBack(aside: string, path: string): boolean {
  remove(draftOf(path))
  if (!found(aside)) return false
  renameSync(aside, path)
  try {
    rmdirSync(dirname(aside))
  } catch {
    // The folder still has other kept files.
  }
  return true
}

/** Whether two paths name one file. */
export function isLinked(one: string, other: string): boolean {
  const [a, b] = [found(one), found(other)]
  return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev
}

/** Whether two paths name the same program: one file, or two files with the same bytes. */
export function isSame(one: string, other: string): boolean {
  return isLinked(one, other) || (found(one)?.size === found(other)?.size && fingerprint(one) !== undefined && fingerprint(one) === fingerprint(other))
}

/** Whether the path is a file that root can run. */
export function isProgram(path: string): boolean {
  const file = found(path)
  return file?.isFile() === true && (file.mode & 0o111) !== 0
}

/** Facts about the bytes of a program. */
interface Read {
  readonly print: string
  readonly isPlumb: boolean
}
const known = new Map<string, Read>()
// Every executable of plumb holds this line, because it holds this source.
const MARK = 'plumb: one executable for all plugins, told apart by the name it is called by'

/** A hash of a program's bytes (BLAKE2b-256). Undefined when there is no such file. */
export function fingerprint(path: string): string | undefined {
  return readOnce(path)?.print
}

/** Whether a program is plumb, of any version. */
export function isPlumb(path: string): boolean {
  return readOnce(path)?.isPlumb === true
}

// Reads each file from the beginning to the end only once.
function readOnce(path: string): Read | undefined {
  const file = found(path)
  if (!file?.isFile()) return undefined
  // All hard links of a file have the same key.
  const key = [file.dev, file.ino, file.size, file.mtimeMs].join(' ')
  const before = known.get(key)
  if (before) return before
  const hash = new Bun.CryptoHasher('blake2b256')
  let [hasMark, end] = [false, Buffer.alloc(0)]
  for (const chunk of chunks(path)) {
    hash.update(chunk)
    // The mark may lie across two chunks.
    hasMark ||= chunk.includes(MARK) || Buffer.concat([end, chunk.subarray(0, MARK.length)]).includes(MARK)
    end = Buffer.from(chunk.subarray(-MARK.length))
  }
  const read = { print: hash.digest('hex'), isPlumb: hasMark }
  known.set(key, read)
  return read
}

function* chunks(path: string): Generator<Buffer, undefined> {
  const fd = openSync(path, 'r')
  try {
    const buffer = Buffer.allocUnsafe(CHUNK)
    for (let read = readSync(fd, buffer); read > 0; read = readSync(fd, buffer)) yield buffer.subarray(0, read)
  } finally {
    closeSync(fd)
  }
}

// Returns false across file systems, and on a file system without hard links.
function link(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch {
    return false
  }
}

function copy(from: string, to: string): void {
  const fd = openSync(to, 'wx')
  try {
    for (const chunk of chunks(from)) writeFileSync(fd, chunk)
    fchmodSync(fd, statSync(from).mode)
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

function found(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false })
}
