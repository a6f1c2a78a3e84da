// This folder parses and formats plain texts: addresses, names, configurations, error messages. It touches neither
// kernel nor disk. Begin with the branded types in this file, then read ip.ts and shape.ts.
import { digest } from './digest.ts'
import { shown, ValueError } from './errors.ts'

/**
 * A link name that the kernel accepts: 1 to 15 bytes, no slash, colon or blank, not `.` or `..` (dev_valid_name, skel).
 */
export type IfName = string & { readonly __brand: 'IfName' }
/** The path of a network namespace file. It is safe inside a batch line. */
export type NetnsPath = string & { readonly __brand: 'NetnsPath' }
/** CNI_CONTAINERID: `[a-zA-Z0-9][a-zA-Z0-9_.-]*` (CNI spec, "Parameters"). */
export type ContainerId = string & { readonly __brand: 'ContainerId' }
/** A network's `name`. It has the same characters as a container id (CNI spec, "Network configuration format"). */
export type NetworkName = string & { readonly __brand: 'NetworkName' }
/** An Ethernet address in canonical text: six lower-case hex pairs with colons between them. */
export type Mac = string & { readonly __brand: 'Mac' }
/** A TCP, UDP or SCTP port, 1 to 65535. */
export type Port = number & { readonly __brand: 'Port' }

const MAC = /^(?:[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4})$/

/** One parser per branded type. Each throws ValueError `<value>: want <what would be right>`. */
export const parse = {
  ifname(value: unknown): IfName {
    // dev_alloc_name: the kernel replaces "%d" with a number of its choice.
    if (typeof value === 'string' && value.includes('%'))
      throw new ValueError(`${shown(value)}: want an interface name without "%"`)
    return must<IfName>(value, isIfName, 'an interface name of 1 to 15 bytes without "/", ":" or blanks')
  },
  netns: (value: unknown) => must<NetnsPath>(value, isPath, 'the path of a network namespace'),
  containerId: (value: unknown) =>
    must<ContainerId>(value, isName, 'a letter or digit, then letters, digits, "_", "." or "-"'),
  network: (value: unknown) =>
    must<NetworkName>(value, isName, 'a letter or digit, then letters, digits, "_", "." or "-"'),
  mac(value: unknown): Mac {
    const isMac = typeof value === 'string' && MAC.test(value)
    const pairs = isMac ? (value.match(/[0-9a-fA-F]{2}/g) as string[]) : []
    // The kernel refuses group addresses and the all-zero address on a link (is_valid_ether_addr).
    if (pairs.length !== 6 || Number.parseInt(pairs[0] as string, 16) & 1 || pairs.every((pair) => pair === '00'))
      throw new ValueError(`${shown(value)}: want a unicast Ethernet address such as 02:00:0a:f4:00:02`)
    return pairs.join(':').toLowerCase() as Mac
  },
  port(value: unknown): Port {
    if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > 65535)
      throw new ValueError(`${shown(value)}: want a port, 1 to 65535`)
    return value as Port
  },
}

/**
 * A form of a name that is short enough for a file name, a link alias or an nft comment. A name of up to 100 characters
 * stays as it is. A longer name becomes `+` and its digest of 32 hex digits. No name starts with `+`.
 */
export function brief(name: string): string {
  return name.length <= 100 ? name : `+${digest(name)}`
}

function must<T>(value: unknown, test: (text: string) => boolean, want: string): T {
  if (typeof value !== 'string' || !test(value)) throw new ValueError(`${shown(value)}: want ${want}`)
  return value as T
}

/** Whether a text is a name as CNI defines it: a letter or digit, then letters, digits, `_`, `.` or `-`. */
export function isName(text: string): boolean {
  return /^[a-zA-Z0-9][\w.-]*$/.test(text)
}

/** The number of bytes of a text in UTF-8. */
export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length
}

// No blanks, control characters or surrogates, and none of the quote, comment and escape characters of a batch line.
// `ip -batch` would split at them or read them as a comment.
const PLAIN = /^[^\s\0-\x20\x7f-\xa0\ud800-\udfff"#'\\]+$/

function isIfName(text: string): boolean {
  return text.length <= 15 && PLAIN.test(text) && !/^\.{1,2}$|[/:]/.test(text) && byteLength(text) <= 15
}

// No runtime uses a path that a batch line cannot hold.
function isPath(text: string): boolean {
  return text.length <= 4095 && PLAIN.test(text) && text.includes('/')
}

/** The namespace of a resource: `host` is the namespace in which plumb was started, a path is the pod's namespace. */
export type Netns = 'host' | NetnsPath

/**
 * A MAC address from the first ten of at least ten hex digits. It is locally administered and unicast (IEEE 802: bit 1
 * of the first octet is set, bit 0 is clear).
 */
export function localMac(hex: string): Mac {
  let text = '02'
  for (let at = 0; at < 10; at += 2) text += `:${hex.slice(at, at + 2)}`
  return text as Mac
}
