import { closeSync, openSync, statfsSync, statSync } from 'node:fs'
import { CniError, CODE } from './errors.ts'
import { setns } from './libc.ts'
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

/** What tells a namespace from another that comes to the same path later, unless the kernel has given the number of one that is gone to the other; undefined when there is none. */
export function inodeOf(path: NetnsPath): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino
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
