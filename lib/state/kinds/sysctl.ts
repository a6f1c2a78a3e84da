import type { Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/** A file below /proc/sys/net of the namespace. The name uses slashes: `ipv4/ip_forward`. */
export interface Sysctl {
  readonly kind: 'sysctl'
  readonly ns: Netns
  readonly name: string
  readonly value: string
  /** The file to write while the link still has its birth name. The file name contains the birth name. */
  readonly through?: string
  /** A missing file is no error. The kernel lacks the feature, for example because IPv6 is off. */
  readonly optional?: true
  /** The earlier value. `drop` restores it. */
  readonly before?: string
  /** Other attachments in the pod may rely on the value. It is restored only when the ADD that set it fails. */
  readonly stays?: true
}

/**
 * Sysctls below /proc/sys/net. plumb writes them as files in their namespace, without a process. `drop` restores only
 * sysctls with a noted earlier value, because other programs may rely on the rest.
 */
export const sysctl: Handler<Sysctl> = {
  tool: 'file',
  title: ({ ns, name }) => `sysctl net/${name}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, name }) => `sysctl ${ns} ${name}`,
  put: ({ name, value, through }) => [{ text: `net/${through ?? name} = ${value}` }],
  drop: ({ name, before, stays }) => (before === undefined || stays ? [] : [{ text: `net/${name} = ${before}` }]),
  ask: ({ name }) => `net/${name}`,
  // The kernel separates several numbers by tabs.
  read: (row, want) => ({ ...want, value: words(String(row)) === words(want.value) ? want.value : String(row) }),
}

function words(value: string): string {
  return value.trim().split(/\s+/).join(' ')
}

function purpose({ name, value, optional }: Sysctl): string {
  const [, about] = phrases().find(([pattern]) => pattern.test(`${name} = ${value}`)) ?? []
  return `${about ?? `sysctl net/${name}`}${optional ? '' : '; an error where the kernel has it not'}`
}

// A function, because plugins never need the phrases and then do not build them.
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
