import type { Check, Seen } from '../check.ts'

/** The least free space, in bytes and in files, that calls of plugins need for a while. */
const [BYTES, FILES] = [1024 * 1024, 100]

/** A file system that plugins and agent write to is full, or is mounted read-only. */
export const check: Check = {
  code: 'DR37',
  title: 'a file system cannot be written',
  severity: 'error',
  detect({ disks }) {
    return disks.flatMap(({ path, mount, isReadOnly, freeBytes, freeFiles }): Seen[] => {
      const effect = `plumb cannot write below ${path}: pods do not start, and their addresses are not freed`
      if (isReadOnly) {
        const commands = [`mount -o remount,rw ${mount}`]
        return [{ what: `The file system ${mount} is read-only`, effect, commands }]
      }
      const isFull = freeBytes < BYTES || (freeFiles !== undefined && freeFiles < FILES)
      if (!isFull) return []
      const rest = freeBytes < BYTES ? `${Math.floor(freeBytes / 1024)} kB` : `${freeFiles} files`
      return [
        { what: `The file system ${mount} has ${rest} left`, effect, commands: [`du -xh ${mount} | sort -h | tail`] },
      ]
    })
  },
}
