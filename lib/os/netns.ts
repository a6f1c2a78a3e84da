import { CniError, CODE } from '../text/errors.ts'
import type { Netns, NetnsPath } from '../text/values.ts'
import { fs, type Stat } from './fs.ts'
import { setns } from './libc.ts'
import { netnsCookie } from './sockets.ts'

const OWN = '/proc/self/ns/net'
// NSFS_MAGIC of linux/magic.h: the file system of namespace files, both bind mounts and files below /proc.
const NSFS = 0x6e736673

/**
 * The path of this process's network namespace, for other programs. /proc may belong to another PID namespace than this
 * process does, and there the number of getpid(2) is a stranger's. Throws when this process is not in /proc.
 */
export function ownNetns(): string {
  return `/proc/${fs.readlinkSync('/proc/self')}/ns/net`
}

/**
 * Runs synchronous work in a network namespace. This thread, its child processes and /proc/sys/net are then in that
 * namespace. Always returns to the old namespace afterwards. Throws CniError 3 when the namespace is gone, and 5 when it
 * cannot be entered for another reason.
 */
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

/**
 * The kind of a namespace path. `pod` is a namespace other than plumb's. `own` is plumb's namespace. `gone` means that
 * no file exists. `other` is a file that is no namespace. Changes nothing.
 */
export function netnsState(path: NetnsPath): 'pod' | 'own' | 'gone' | 'other' {
  const found = factsOf(path)
  if (!found) return 'gone'
  if (fs.statfsSync(path) !== NSFS) return 'other'
  const own = fs.statSync(OWN)
  return found.ino === own?.ino && found.dev === own.dev ? 'own' : 'pod'
}

/** Whether a path surely leads to no namespace: no file exists, or a file that is no namespace. */
export function isNoNamespace(path: NetnsPath): boolean {
  return ['gone', 'other'].includes(netnsState(path))
}

/**
 * The identity of a namespace. The kernel may give the inode to another namespace later. It never gives the cookie to
 * another one. The cookie needs Linux 5.14.
 */
export interface Identity {
  readonly inode: number
  readonly cookie?: string | undefined
}

/** The inode of the namespace at a path. Undefined when there is no file. */
export function inodeOf(path: NetnsPath): number | undefined {
  const found = factsOf(path)
  return found && Number(found.ino)
}

// Also undefined when a folder of the path is a file by now (ENOTDIR). DEL must work then.
function factsOf(path: NetnsPath): Stat | undefined {
  try {
    return fs.statSync(path)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined
    throw cause
  }
}

/**
 * The identity of the namespace at a path. Other namespaces that come to this path later differ from it. Undefined when
 * there is no file.
 */
export function identityOf(path: NetnsPath): Identity | undefined {
  const inode = inodeOf(path)
  if (inode === undefined) return undefined
  return { inode, cookie: cookieOf(path) }
}

/** Whether the namespace at a path has this identity. */
export function isAt(path: NetnsPath, { inode, cookie }: Identity): boolean {
  return inodeOf(path) === inode && (cookie === undefined || (cookieOf(path) ?? cookie) === cookie)
}

// Undefined when the namespace cannot be entered. Then only the inode identifies it.
function cookieOf(path: NetnsPath): string | undefined {
  try {
    return inside(path, netnsCookie)?.toString()
  } catch {
    return undefined
  }
}

// How open(2) and setns(2) say that the namespace is gone, or that the file is none. Any other error, such as too many
// open files, tells nothing of the container.
const GONE = /^(setns: )?(ENOENT|ENOTDIR|ESRCH|EINVAL)\b/

function enter(path: NetnsPath): number {
  let fd: number | undefined
  try {
    fd = fs.openSync(path, 'r')
    setns(fd)
    return fd
  } catch (cause) {
    if (fd !== undefined) fs.closeSync(fd)
    // Code 3 says that the container is gone, and a runtime need not clean up after that.
    const code = GONE.test((cause as Error).message) ? CODE.unknownContainer : CODE.io
    throw new CniError(code, `Cannot enter the network namespace ${path}`, (cause as Error).message, { cause })
  }
}
