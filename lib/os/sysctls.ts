import type { NodeFacts } from '../cni/plugin.ts'
import { partName, readPart } from '../journal/journal.ts'
import { isFirewalldThere } from '../nft/firewalld.ts'
import type { Sysctl } from '../state/kinds/sysctl.ts'
import { shown } from '../text/errors.ts'
import { readAllowList } from '../wiring/allow-list.ts'
import { hostEnd } from '../wiring/host-end.ts'
import { fs } from './fs.ts'
import { floatingMac, linkIn } from './links.ts'
import { log } from './log.ts'
import { inside } from './netns.ts'
import { readText } from './reading.ts'
import { defaultDevice, deviceTo } from './routes.ts'

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
export function restoreSysctl({ name, before = '' }: Sysctl): void {
  try {
    writeSysctl(name, before)
  } catch (cause) {
    log(`plumb: Cannot put net/${name} back to ${shown(before)}: ${(cause as Error).message}`)
  }
}

// One plugin call asks several times.
let machineId: string | undefined

/** The node's settings, read when they are asked for. */
export const nodeFacts: NodeFacts = {
  get machineId() {
    machineId ??= readMachineId()
    return machineId
  },
  noted: (type, owner) => readPart(partName(type, owner)) !== undefined,
  get bridgeNf() {
    return ['iptables', 'ip6tables'].some((tables) => readSysctl(`bridge/bridge-nf-call-${tables}`) === '1')
  },
  get hasTun() {
    return fs.existsSync('/dev/net/tun')
  },
  get hasFirewalld() {
    return isFirewalldThere()
  },
  get hasSelinux() {
    return fs.existsSync('/sys/fs/selinux/enforce')
  },
  deviceTo,
  get sysctlsAllowed() {
    return readAllowList()
  },
  link: linkIn,
  floatingMac,
  defaultDevice: (ns) => inside(ns, defaultDevice),
  hostEnd,
}

// machine-id(5). An image without one, or that has not booted yet, has the id of this boot: MACs need not outlive it.
function readMachineId(): string {
  const text = readText('/etc/machine-id')?.trim() ?? ''
  return /^[0-9a-f]{32}$/.test(text) ? text : (readText('/proc/sys/kernel/random/boot_id')?.trim() ?? '')
}
