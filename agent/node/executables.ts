import { closeSync, fchmodSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, renameSync, rmdirSync, type Stats, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { draftOf, remove } from '../../lib/os/files.ts'

// A huge page: what is written in such pieces lies so in the page cache, where the file system can.
const CHUNK = 2 << 20

/** Makes `to` the same program as `from`, in one step whatever stood there: a hard link where that is asked for and both are on one file system, else a copy that is on the disk before it is in place. */
export function place(from: string, to: string, { linked }: { readonly linked: boolean }): void {
  const draft = draftOf(to)
  mkdirSync(dirname(to), { recursive: true, mode: 0o755 })
  remove(draft)
  if (!linked || !link(from, draft)) copy(from, draft)
  renameSync(draft, to)
}

/** Keeps what stands at a path under another name too, on the same file system, until `putBack`. What is kept already stays. */
export function setAside(path: string, aside: string): void {
  mkdirSync(dirname(aside), { recursive: true, mode: 0o755 })
  remove(aside)
  linkSync(path, aside)
}

/** Puts it back in one step, and removes the folder when it was the last, and a draft of `place` that was killed; false when nothing is kept. */
export function putBack(aside: string, path: string): boolean {
  remove(draftOf(path))
  if (!found(aside)) return false
  renameSync(aside, path)
  try {
    rmdirSync(dirname(aside))
  } catch {
    // Others are kept there.
  }
  return true
}

/** Whether two paths lead to one file. */
export function isLinked(one: string, other: string): boolean {
  const [a, b] = [found(one), found(other)]
  return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev
}

/** Whether two paths lead to the same program: to one file, or to two of the same bytes. */
export function isSame(one: string, other: string): boolean {
  return isLinked(one, other) || (found(one)?.size === found(other)?.size && fingerprint(one) !== undefined && fingerprint(one) === fingerprint(other))
}

/** Whether there is a file that root can run. */
export function isProgram(path: string): boolean {
  const file = found(path)
  return file?.isFile() === true && (file.mode & 0o111) !== 0
}

/** What is known of a program's bytes. */
interface Read {
  readonly print: string
  readonly isPlumb: boolean
}
const known = new Map<string, Read>()
// Every executable of plumb holds this line, because it holds this source.
const MARK = 'plumb: one executable for all plugins, told apart by the name it is called by'

/** What tells the bytes of a program from others; undefined when there is none. */
export function fingerprint(path: string): string | undefined {
  return readOnce(path)?.print
}

/** Whether a program is plumb, of any version. */
export function isPlumb(path: string): boolean {
  return readOnce(path)?.isPlumb === true
}

// From its beginning to its end, once.
function readOnce(path: string): Read | undefined {
  const file = found(path)
  if (!file?.isFile()) return undefined
  // Seven names of one file are one file.
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

// False on another file system, or one that has no links.
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
