import { shown } from '../text/errors.ts'
import { fs } from './fs.ts'
import { log } from './log.ts'
import { readText } from './reading.ts'

/** The value of a sysctl below /proc/sys/net of this thread's namespace (`ipv4/ip_forward`), undefined when the kernel has none. */
export function readSysctl(name: string): string | undefined {
  return readText(`/proc/sys/net/${name}`)?.trim()
}

/** The same of one that may not be readable: empty then. */
export function maybeSysctl(name: string): string | undefined {
  try {
    return readSysctl(name)
  } catch {
    return ''
  }
}

/** Sets it; false when the kernel has none. Throws the file system's error when it refuses the value. */
export function writeSysctl(name: string, value: string): boolean {
  try {
    const fd = fs.openSync(`/proc/sys/net/${name}`, 'r+')
    try {
      fs.writeAllSync(fd, value)
      return true
    } finally {
      fs.closeSync(fd)
    }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw cause
  }
}

/** Puts back what a sysctl was. Cannot fail: it may have gone with its link, and nothing must keep a DEL from going on. */
export function restoreSysctl({ name, before = '' }: { readonly name: string; readonly before?: string }): void {
  try {
    writeSysctl(name, before)
  } catch (cause) {
    log(`plumb: Cannot put net/${name} back to ${shown(before)}: ${(cause as Error).message}`)
  }
}
