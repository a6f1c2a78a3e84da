import { defineCheck, type SeenFault } from '../check.ts'

/** A file system that plugins or the agent write to takes no file: it is full, read-only, or broken. */
export const check = defineCheck({
  code: 'DR37',
  title: 'a file system cannot be written',
  severity: 'error',
  inAgent: 'node',
  reads: ['disks'],
  detect({ disks }) {
    return disks.flatMap(({ path, of, mount, refusal }): SeenFault[] => {
      if (refusal === undefined) return []
      const { why, command } = WHY[refusal] ?? { why: 'fails', command: `findmnt ${mount}` }
      const what = `Cannot write to ${path}, because the file system ${mount} ${why} (${refusal})`
      const effect = of === 'plugins' ? 'no pod can be attached' : 'the agent does not keep its state'
      return [{ what, effect, commands: [command.replace('MOUNT', mount)] }]
    })
  },
})

const FULL = { why: 'is full', command: 'du -xh MOUNT | sort -h | tail' }
const WHY: Readonly<Record<string, typeof FULL>> = {
  ENOSPC: FULL,
  EDQUOT: FULL,
  EROFS: { why: 'is read-only', command: 'mount -o remount,rw MOUNT' },
}
