import { CniError, CODE } from '../text/errors.ts'
import type { Netns, NetnsPath } from '../text/values.ts'
import { fs } from './fs.ts'
import { setns } from './libc.ts'
import { netnsCookie } from './sockets.ts'

const OWN = '/proc/self/ns/net'
// linux/magic.h NSFS_MAGIC: what a namespace file, bound or below /proc, lies on.
const NSFS = 0x6e736673

/** Runs synchronous work with this thread, and every child it starts, in a network namespace; /proc/sys/net follows. Back in the old one afterwards, whatever happened. Throws CniError 3 when the namespace cannot be entered. */
export function inside<T>(ns: Netns, work: () => T): T {
  if (ns === 'host') return work()
  const back = fs.openSync(OWN, 'r')
  try {
    const fd = enter(ns)
    try {
      return work()
    } finally {
      setns(back)
      fs.closeSync(fd)
    }
  } finally {
    fs.closeSync(back)
  }
}

/** What a path is before anything is changed there: `own` is the namespace that plumb runs in, `gone` has no file, `other` is no namespace. */
export function netnsState(path: NetnsPath): 'pod' | 'own' | 'gone' | 'other' {
  const found = fs.statSync(path)
  if (!found) return 'gone'
  if (fs.statfsSync(path) !== NSFS) return 'other'
  const own = fs.statSync(OWN)
  return found.ino === own?.ino && found.dev === own.dev ? 'own' : 'pod'
}

/** A namespace's number, which the kernel gives to another when it is gone, and where Linux is 5.14 or newer its cookie, which it does not. */
export interface Identity {
  readonly inode: number
  readonly cookie?: string | undefined
}

/** The number of the namespace at a path; undefined when there is none. */
export function inodeOf(path: NetnsPath): number | undefined {
  const found = fs.statSync(path)
  return found && Number(found.ino)
}

/** What tells the namespace at a path from others that come to that path later; undefined when there is none. */
export function identityOf(path: NetnsPath): Identity | undefined {
  const inode = inodeOf(path)
  if (inode === undefined) return undefined
  return { inode, cookie: cookieOf(path) }
}

/** Whether the namespace at a path is this one. */
export function isAt(path: NetnsPath, { inode, cookie }: Identity): boolean {
  return inodeOf(path) === inode && (cookie === undefined || (cookieOf(path) ?? cookie) === cookie)
}

// None that is not to be entered: its number must do then.
function cookieOf(path: NetnsPath): string | undefined {
  try {
    return inside(path, netnsCookie)?.toString()
  } catch {
    return undefined
  }
}

function enter(path: NetnsPath): number {
  let fd: number | undefined
  try {
    fd = fs.openSync(path, 'r')
    setns(fd)
    return fd
  } catch (cause) {
    if (fd !== undefined) fs.closeSync(fd)
    throw new CniError(CODE.unknownContainer, `Cannot enter the network namespace ${path}`, (cause as Error).message, { cause })
  }
}
