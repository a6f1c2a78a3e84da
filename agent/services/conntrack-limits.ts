import { statSync } from 'node:fs'
import { readSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import type { ConntrackLimits } from '../settings/settings.ts'

/** A sysctl below /proc/sys/net. One with `isFloor` is never made smaller. */
export interface WantedSysctl {
  readonly name: string
  readonly value: number
  readonly isFloor?: true
}

/** The connections per bucket of the kernel's hash table (kube-proxy, cmd/kube-proxy/app/conntrack.go). */
const PER_BUCKET = 4

/**
 * The sysctls for these limits, as kube-proxy sets them (cmd/kube-proxy/app/server_linux.go). kube-proxy also lowers
 * the number of connections. Pure.
 */
export function conntrackSysctls(limits: ConntrackLimits, cores: number): WantedSysctl[] {
  const max = limits.maxPerCore > 0 ? Math.max(limits.maxPerCore * cores, limits.min) : 0
  const all: readonly WantedSysctl[] = [
    { name: 'nf_conntrack_max', value: max, isFloor: true },
    { name: 'nf_conntrack_buckets', value: Math.floor(max / PER_BUCKET), isFloor: true },
    { name: 'nf_conntrack_tcp_timeout_established', value: limits.tcpEstablished },
    { name: 'nf_conntrack_tcp_timeout_close_wait', value: limits.tcpCloseWait },
    { name: 'nf_conntrack_udp_timeout', value: limits.udp },
    { name: 'nf_conntrack_udp_timeout_stream', value: limits.udpStream },
    { name: 'nf_conntrack_tcp_be_liberal', value: limits.isTcpLiberal ? 1 : 0 },
  ]
  return all.filter(({ value }) => value > 0).map((one) => ({ ...one, name: `netfilter/${one.name}` }))
}

/**
 * Sets the sysctls that differ. Gives what was set, and what could not be set, one sentence each. The number of
 * connections belongs to the namespace of the machine: in another one the kernel lets nobody write it, and it stays.
 */
export function setSysctls(all: readonly WantedSysctl[]): { readonly done: string[]; readonly failed: string[] } {
  const [done, failed]: [string[], string[]] = [[], []]
  for (const { name, value, isFloor } of all) {
    const title = sysctlName(name)
    try {
      const before = readSysctl(name)
      if (before === undefined) failed.push(`Cannot set ${title} to ${value}: the kernel has no such sysctl`)
      if (before === undefined || Number(before) === value || (isFloor && Number(before) > value)) continue
      if (isFloor && !isWritable(name)) continue
      writeSysctl(name, String(value))
      done.push(`set ${title} to ${value}, before ${before}`)
    } catch (cause) {
      failed.push(`Cannot set ${title} to ${value}: ${(cause as Error).message}`)
    }
  }
  return { done, failed }
}

// The kernel gives the file of such a sysctl no bit for writing outside the namespace of the machine.
function isWritable(name: string): boolean {
  return (statSync(`/proc/sys/net/${name}`).mode & 0o200) !== 0
}
