import { realpathSync, statfsSync } from 'node:fs'
import { DIR as JOURNAL } from '../../../lib/journal/journal.ts'
import { nearest, requireRoom } from '../../../lib/os/files.ts'
import { readText } from '../../../lib/os/reading.ts'
import { type Fact, readNow } from './facts.ts'
import type { Lists } from './lists.ts'
import { dataDirs, POOLS } from './pools.ts'
import { lists } from './runtimes.ts'

/** The file system of a folder that plumb writes to. */
export interface Disk {
  readonly path: string
  /** Who writes there. */
  readonly of: 'plugins' | 'agent'
  /** The mount point. */
  readonly mount: string
  /** Why the folder takes no file, such as ENOSPC. STATUS of the plugins looks in the same way. */
  readonly refusal?: string
  readonly freeBytes: number
  /** Absent for a file system that has no limit of files. */
  readonly freeFiles?: number
}

/** The file systems of the folders that plumb writes to. */
export const disks: Fact<readonly Disk[]> = {
  async read({ places, maybe }) {
    return [...readDisks(foldersOfPlugins(await maybe(lists)), 'plugins'), ...readDisks(places.written, 'agent')]
  },
  inAgent: (of) => readNow(() => readDisks(foldersOfPlugins(withoutFault(() => of(lists))), 'plugins')),
}

// Networks that cannot be read name no folders.
function withoutFault(read: () => Lists): Lists | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** The folders that an ADD writes to: the journal, and the pools of the networks. */
function foldersOfPlugins(lists?: Lists): string[] {
  return [...new Set([JOURNAL, POOLS, ...(lists ? dataDirs(lists) : [])])]
}

/**
 * Reads the file systems of folders, and whether the folders take files. For a folder that does not exist, it reads the
 * nearest one above. Throws Error when that cannot be told, such as without root.
 */
function readDisks(paths: readonly string[], of: Disk['of']): Disk[] {
  // proc(5), mountinfo: the mount point is the fifth word.
  const mounts = (readText('/proc/self/mountinfo') ?? '').split('\n').map((line) => unescaped(line.split(' ')[4] ?? ''))
  return paths.map((path): Disk => {
    const refusal = refusalOf(path)
    const real = realpathSync(nearest(path))
    const { bavail, bsize, files, ffree } = statfsSync(real)
    const isOn = (mount: string) => mount !== '' && (real === mount || real.startsWith(`${mount}/`))
    const mount = mounts.filter(isOn).reduce((best, one) => (one.length >= best.length ? one : best), '/')
    return {
      path,
      of,
      mount,
      ...(refusal !== undefined && { refusal }),
      freeBytes: bavail * bsize,
      ...(files > 0 && { freeFiles: ffree }),
    }
  })
}

function refusalOf(path: string): string | undefined {
  try {
    requireRoom(path)
    return undefined
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (code === undefined || code === 'EACCES') throw cause
    return code
  }
}

// proc(5): a blank in a path is \040.
function unescaped(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}
