import { CniError, CODE } from '../text/errors.ts'
import type { Netns, NetnsPath } from '../text/values.ts'
import { fs } from './fs.ts'
import { setns } from './libc.ts'
import { listFiles, readText } from './reading.ts'
import { netnsCookie } from './sockets.ts'

const OWN = '/proc/self/ns/net'
// NSFS_MAGIC of linux/magic.h: the file system of namespace files, both bind mounts and files below /proc.
const NSFS = 0x6e736673

/**
 * Runs synchronous work in a network namespace. This thread, its child processes and /proc/sys/net are then in that namespace. Always
 * returns to the old namespace afterwards. Throws CniError 3 when the namespace cannot be entered.
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
 * The kind of a namespace path. `pod` is a namespace other than plumb's. `own` is plumb's namespace. `gone` means that no file exists.
 * `other` is a file that is no namespace. Changes nothing.
 */
export function netnsState(path: NetnsPath): 'pod' | 'own' | 'gone' | 'other' {
  const found = fs.statSync(path)
  if (!found) return 'gone'
  if (fs.statfsSync(path) !== NSFS) return 'other'
  const own = fs.statSync(OWN)
  return found.ino === own?.ino && found.dev === own.dev ? 'own' : 'pod'
}

/**
 * Does the work in each network namespace of the node: those of processes, and those that a file keeps. A namespace that only an open file of
 * a process keeps is missing. Throws CniError 3 when a namespace that is there cannot be entered.
 */
export function inEach(work: () => void): void {
  const found = new Map<bigint, NetnsPath[]>()
  const kept = (readText('/proc/self/mountinfo') ?? '').split('\n').flatMap((line) => {
    const [words = '', kind = ''] = line.split(' - ')
    return kind.startsWith('nsfs ') && words.includes(' net:[') ? [unescaped(words.split(' ')[4] ?? '')] : []
  })
  const ofProcesses = listFiles('/proc').flatMap((pid) => (/^\d+$/.test(pid) ? [`/proc/${pid}/ns/net`] : []))
  for (const path of [...kept, ...ofProcesses]) {
    const inode = attempt(() => fs.statSync(path)?.ino)
    if (inode !== undefined) found.set(inode, [...(found.get(inode) ?? []), path as NetnsPath])
  }
  for (const [inode, paths] of found) {
    let failure: unknown
    // A process or a file may go at any time, and another one may keep the namespace.
    const isSeen = paths.some((path) => {
      try {
        inside(path, work)
        return true
      } catch (cause) {
        if (attempt(() => fs.statSync(path)?.ino) === inode) failure = cause
        return false
      }
    })
    if (!isSeen && failure !== undefined) throw failure
  }
}

// mountinfo writes spaces and backslashes as octal numbers (proc_pid_mountinfo(5)).
function unescaped(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)))
}

// A process may end at any time, and the files of a kernel thread cannot be followed.
function attempt<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}

/**
 * The identity of a namespace. The kernel may give the inode to another namespace later. It never gives the cookie to another one. The
 * cookie needs Linux 5.14.
 */
export interface Identity {
  readonly inode: number
  readonly cookie?: string | undefined
}

/** The inode of the namespace at a path. Undefined when there is no file. */
export function inodeOf(path: NetnsPath): number | undefined {
  const found = fs.statSync(path)
  return found && Number(found.ino)
}

/**
 * The identity of the namespace at a path. Other namespaces that come to this path later differ from it. Undefined when there is no
 * file.
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
