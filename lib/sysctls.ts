import { existsSync, writeFileSync } from 'node:fs'
import { defaultDevice, deviceTo } from './hostroutes.ts'
import { inside, seenIn } from './netns.ts'
import type { NodeFacts } from './plugin.ts'
import { readText } from './reading.ts'

/** The value of a sysctl below /proc/sys/net of this thread's namespace (`ipv4/ip_forward`), undefined when the kernel has none. */
export function readSysctl(name: string): string | undefined {
  return readText(`/proc/sys/net/${name}`)?.trim()
}

/** Sets it; false when the kernel has none. Throws the file system's error when it refuses the value. */
export function writeSysctl(name: string, value: string): boolean {
  try {
    writeFileSync(`/proc/sys/net/${name}`, value, { flag: 'r+' })
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw cause
  }
}

/** The node's settings, read when they are asked for. */
export const nodeFacts: NodeFacts = {
  get bridgeNf() {
    return ['iptables', 'ip6tables'].some((tables) => readSysctl(`bridge/bridge-nf-call-${tables}`) === '1')
  },
  get hasTun() {
    return existsSync('/dev/net/tun')
  },
  get hasSelinux() {
    return existsSync('/sys/fs/selinux/enforce')
  },
  deviceTo,
  link: seenIn,
  defaultDevice: (ns) => inside(ns, defaultDevice),
}
