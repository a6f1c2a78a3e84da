import { shown } from '../text/errors.ts'
import { fs } from './fs.ts'
import { log } from './log.ts'
import { readText } from './reading.ts'

/** The sysctls by which frames between two ports of a bridge meet the rules of IP. br_netfilter has them. */
export const BRIDGE_FILTERS = ['bridge/bridge-nf-call-iptables', 'bridge/bridge-nf-call-ip6tables'] as const

/** The name that sysctl(8) knows: `net.ipv4.ip_forward` for `ipv4/ip_forward`. */
export function sysctlName(name: string): string {
  return `net.${name.replaceAll('/', '.')}`
}

/**
 * The value of a sysctl below /proc/sys/net of this thread's namespace (`ipv4/ip_forward`). Undefined when the kernel
 * has no such sysctl.
 */
export function readSysctl(name: string): string | undefined {
  return readText(`/proc/sys/net/${name}`)?.trim()
}

/** Like `readSysctl`, for a sysctl that may not be readable. Then the value is empty. */
export function maybeSysctl(name: string): string | undefined {
  try {
    return readSysctl(name)
  } catch {
    return ''
  }
}

/**
 * Sets a sysctl. Returns false when the kernel has no such sysctl. Throws the file system's error when the kernel
 * refuses the value.
 */
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

/** Restores the earlier value of a sysctl. Never throws: it may have gone with its link, and a DEL must continue. */
export function restoreSysctl({ name, before = '' }: { readonly name: string; readonly before?: string }): void {
  try {
    writeSysctl(name, before)
  } catch (cause) {
    log(`plumb: Cannot put net/${name} back to ${shown(before)}: ${(cause as Error).message}`)
  }
}
