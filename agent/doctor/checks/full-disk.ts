import { defineCheck, type SeenFault } from '../check.ts'

/** The least free space, in bytes and in files, that calls of plugins need for a while. */
const [BYTES, FILES] = [1024 * 1024, 100]

/** A file system that plugins or the agent write to takes files, and soon will not. */
export const check = defineCheck({
  code: 'DR55',
  title: 'a file system is nearly full',
  severity: 'warning',
  dependsOn: ['DR37'],
  inAgent: 'part',
  reads: ['disks'],
  detect({ disks }) {
    return disks.flatMap(({ path, of, mount, freeBytes, freeFiles }): SeenFault[] => {
      if (freeBytes >= BYTES && (freeFiles === undefined || freeFiles >= FILES)) return []
      const rest = freeBytes < BYTES ? `${Math.floor(freeBytes / 1024)} kB` : `${freeFiles} files`
      const effect = of === 'plugins' ? 'soon no pod can be attached' : 'soon the agent does not keep its state'
      const what = `The file system ${mount} of ${path} has ${rest} left`
      return [{ what, effect, commands: [`du -xh ${mount} | sort -h | tail`] }]
    })
  },
})
