import { closeSync, openSync, statfsSync, statSync } from 'node:fs'
import { CniError, CODE } from './errors.ts'
import { linkState, setns } from './libc.ts'
import { type SeenLink, seenLink } from './seenlink.ts'
import type { Netns } from './state.ts'
import type { NetnsPath } from './values.ts'

const OWN = '/proc/self/ns/net'
// linux/magic.h NSFS_MAGIC: what a namespace file, bound or below /proc, lies on.
const NSFS = 0x6e736673

/** Runs synchronous work with this thread, and every child it starts, in a network namespace; /proc/sys/net follows. Back in the old one afterwards, whatever happened. Throws CniError 3 when the namespace cannot be entered. */
export function inside<T>(ns: Netns, work: () => T): T {
  if (ns === 'host') return work()
  const back = openSync(OWN, 'r')
  try {
    const fd = enter(ns)
    try {
      return work()
    } finally {
      setns(back)
      closeSync(fd)
    }
  } finally {
    closeSync(back)
  }
}

/** What a path is before anything is changed there: `own` is the namespace that plumb runs in, `gone` has no file, `other` is no namespace. */
export function netnsState(path: NetnsPath): 'pod' | 'own' | 'gone' | 'other' {
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found) return 'gone'
  if (statfsSync(path).type !== NSFS) return 'other'
  const own = statSync(OWN)
  return found.ino === own.ino && found.dev === own.dev ? 'own' : 'pod'
}

/** Whether a namespace has a link of this name, asked of the kernel itself. True also when it would not say. */
export function isLink(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) !== 'absent'
}

/** Whether a link is up and works: one that is being removed does not from the first moment, long before it is gone. False also when there is none. */
export function isRunning(name: string, ns: Netns): boolean {
  return inside(ns, () => linkState(name)) === 'running'
}

/** What the kernel says of a link of a namespace; undefined when there is none. Throws CniError 3 when the namespace cannot be entered. */
export function seenIn(name: string, ns: Netns): SeenLink | undefined {
  return inside(ns, () => seenLink(name))
}

function enter(path: NetnsPath): number {
  let fd: number | undefined
  try {
    fd = openSync(path, 'r')
    setns(fd)
    return fd
  } catch (cause) {
    if (fd !== undefined) closeSync(fd)
    throw new CniError(CODE.unknownContainer, `Cannot enter the network namespace ${path}`, (cause as Error).message, { cause })
  }
}
