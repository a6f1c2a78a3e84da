import type { Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** A file below /proc/sys/net of its namespace, named with slashes: `ipv4/ip_forward`. */
export interface Sysctl {
  readonly kind: 'sysctl'
  readonly ns: Netns
  readonly name: string
  readonly value: string
  /** The file it is written through, while the link that it is of still has the name it was made under. */
  readonly through?: string
  /** Absence is no error: the kernel lacks the feature (IPv6 switched off). */
  readonly optional?: true
  /** What it was: put back when it is dropped. */
  readonly before?: string
  /** Others in the pod may rely on it by then: it is put back only when the ADD that set it fails. */
  readonly stays?: true
}

/** Sysctls below /proc/sys/net, written as files in their namespace: no process is started for them. They are put back only where it is noted what they were: others may rely on them. */
export const sysctl: Handler<Sysctl> = {
  tool: 'file',
  title: ({ ns, name }) => `sysctl net/${name}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, name }) => `sysctl ${ns} ${name}`,
  put: ({ name, value, through }) => [{ text: `net/${through ?? name} = ${value}` }],
  drop: ({ name, before, stays }) => (before === undefined || stays ? [] : [{ text: `net/${name} = ${before}` }]),
  ask: ({ name }) => `net/${name}`,
  // The kernel puts tabs between several numbers.
  read: (row, want) => ({ ...want, value: words(String(row)) === words(want.value) ? want.value : String(row) }),
}

function words(value: string): string {
  return value.trim().split(/\s+/).join(' ')
}

function purpose({ name, value, optional }: Sysctl): string {
  const [, about] = phrases().find(([pattern]) => pattern.test(`${name} = ${value}`)) ?? []
  return `${about ?? `sysctl net/${name}`}${optional ? '' : '; an error where the kernel has it not'}`
}

// Made when they are asked for: a plugin never is.
function phrases(): readonly (readonly [RegExp, string])[] {
  return [
    [/^ipv4\/ip_forward = 1$/, 'the node passes IPv4 packets on'],
    [/^ipv6\/conf\/all\/forwarding = 1$/, 'the node passes IPv6 packets on'],
    [/\/accept_ra = 0$/, 'takes no routes from router advertisements'],
    [/\/accept_dad = 0$/, 'no duplicate address detection, which would take 1 to 2 s'],
    [/\/accept_dad = 1$/, 'duplicate address detection, as asked (enabledad)'],
    [/\/enhanced_dad = 1$/, 'its own probes that come back are no duplicates (RFC 7527)'],
    [/\/arp_notify = 1$/, 'neighbours learn of the address at once, by a gratuitous ARP'],
    [/\/ndisc_notify = 1$/, 'the same for IPv6, by an unsolicited advertisement'],
    [/\/disable_ipv6 = 0$/, 'IPv6 on'],
    [/\/disable_ipv6 = 1$/, 'no IPv6 of its own: a port needs none'],
    [/\/keep_addr_on_down = 1$/, 'IPv6 addresses stay when the link goes down'],
    [/\/route_localnet = 1$/, "the node's own programs reach host ports on 127.0.0.1"],
  ]
}
