import { realpathSync, statfsSync } from 'node:fs'
import { readText } from '../../../lib/os/reading.ts'

/** The file system of a folder that plumb writes to. */
export interface Disk {
  readonly path: string
  readonly mount: string
  readonly isReadOnly: boolean
  readonly freeBytes: number
  /** Absent for a file system that has no limit of files. */
  readonly freeFiles?: number
}

/** Reads the file systems of folders. Leaves out a folder that does not exist. */
export function readDisks(paths: readonly string[]): Disk[] {
  // proc(5), mountinfo: the mount point is the fifth word, its options the sixth.
  const mounts = (readText('/proc/self/mountinfo') ?? '').split('\n').flatMap((line) => {
    const [, , , , mount = '', options = ''] = line.split(' ')
    return mount === '' ? [] : [{ mount: unescaped(mount), isReadOnly: options.split(',').includes('ro') }]
  })
  return paths.flatMap((path): Disk[] => {
    try {
      const [real, { bavail, bsize, files, ffree }] = [realpathSync(path), statfsSync(path)]
      const isOn = ({ mount }: { mount: string }) => mount === '/' || real === mount || real.startsWith(`${mount}/`)
      const found = mounts
        .filter(isOn)
        .reduce((best, one) => (one.mount.length >= best.mount.length ? one : best), ROOT)
      return [{ path, ...found, freeBytes: bavail * bsize, ...(files > 0 && { freeFiles: ffree }) }]
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw cause
    }
  })
}

const ROOT = { mount: '/', isReadOnly: false }

// proc(5): a blank in a path is \040.
function unescaped(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}
