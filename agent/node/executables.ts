import {
  closeSync,
  fchmodSync,
  fsyncSync,
  futimesSync,
  linkSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmdirSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { draftOf, remove } from '../../lib/os/files.ts'

const CHUNK = 2 << 20

/**
 * Makes `to` a program with these bytes, in one step. They are on the disk before the file gets its name. An existing
 * file is replaced. `time` is its time in seconds, else now.
 */
export function placeBytes(bytes: Uint8Array, to: string, time?: number): void {
  place(to, (draft) => write(draft, [bytes], 0o755, time))
}

/** Makes `to` a copy of a program, as `placeBytes` does. */
export function placeCopy(from: string, to: string): void {
  place(to, (draft) => write(draft, chunks(from), statSync(from).mode))
}

/** Makes `to` a hard link to a program, in one step. Makes a copy on a file system without hard links. */
export function placeLink(from: string, to: string): void {
  place(to, (draft) => {
    if (!link(from, draft)) write(draft, chunks(from), statSync(from).mode)
  })
}

function place(to: string, make: (draft: string) => void): void {
  const draft = draftOf(to)
  mkdirSync(dirname(to), { recursive: true, mode: 0o755 })
  remove(draft)
  try {
    make(draft)
    renameSync(draft, to)
  } catch (cause) {
    // A draft on a full disk would keep it full.
    remove(draft)
    throw cause
  }
}

/**
 * Keeps the file of a path also under the path `aside`, until `putBack`. Both paths must be on one file system. A file
 * that `aside` already has is replaced.
 */
export function setAside(path: string, aside: string): void {
  mkdirSync(dirname(aside), { recursive: true, mode: 0o755 })
  remove(aside)
  linkSync(path, aside)
}

/**
 * Moves the kept file back in one step, and removes its folder when the folder is empty. Also removes the draft that a
 * killed `place` left. Returns false when no file is kept.
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

/** Forgets a kept file whose path still has it. Removes its folder when the folder is empty. */
export function dropAside(aside: string): void {
  remove(aside)
  try {
    rmdirSync(dirname(aside))
  } catch {
    // The folder still has other kept files, or was never made.
  }
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
// Every executable of plumb holds this line: plumb by this source, the plugins by native/host.c.
const MARK = 'plumb: one executable for all plugins, told apart by the name it is called by'

/** The same hash of bytes as `fingerprint` gives for a file of them. */
export function fingerprintOf(bytes: Uint8Array): string {
  return new Bun.CryptoHasher('blake2b256').update(bytes).digest('hex')
}

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
  // All hard links of a file have the same key. The inode of a file that is gone may be used again in the same second.
  const key = [file.dev, file.ino, file.size, file.mtimeMs, file.ctimeMs].join(' ')
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

function write(to: string, pieces: Iterable<Uint8Array>, mode: number, time?: number): void {
  const fd = openSync(to, 'wx')
  try {
    for (const piece of pieces) writeFileSync(fd, piece)
    fchmodSync(fd, mode)
    if (time !== undefined) futimesSync(fd, time, time)
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

function found(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false })
}
