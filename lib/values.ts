import { shown, ValueError } from './errors.ts'

/** A link name the kernel takes: 1 to 15 bytes, no slash, colon or blank, not `.` or `..` (dev_valid_name, skel). */
export type IfName = string & { readonly __brand: 'IfName' }
/** The path of a network namespace file; safe inside a batch line. */
export type NetnsPath = string & { readonly __brand: 'NetnsPath' }
/** CNI_CONTAINERID: `[a-zA-Z0-9][a-zA-Z0-9_.-]*` (CNI spec, "Parameters"). */
export type ContainerId = string & { readonly __brand: 'ContainerId' }
/** A network's `name`: the same characters (CNI spec, "Network configuration format"). */
export type NetworkName = string & { readonly __brand: 'NetworkName' }
/** An Ethernet address in canonical text: six lower-case hex pairs. */
export type Mac = string & { readonly __brand: 'Mac' }
/** A TCP, UDP or SCTP port, 1 to 65535. */
export type Port = number & { readonly __brand: 'Port' }

/** One parser per branded type; each throws ValueError `<value>: want <what would be right>`. */
export const parse = {
  ifname(value: unknown): IfName {
    // dev_alloc_name: the kernel takes a "%d" for a number that it is to choose itself.
    if (typeof value === 'string' && value.includes('%')) throw new ValueError(`${shown(value)}: want an interface name without "%"`)
    return must<IfName>(value, isIfName, 'an interface name of 1 to 15 bytes without "/", ":" or blanks')
  },
  netns: (value: unknown) => must<NetnsPath>(value, isPath, 'the path of a network namespace'),
  containerId: (value: unknown) => must<ContainerId>(value, isName, 'a letter or digit, then letters, digits, "_", "." or "-"'),
  network: (value: unknown) => must<NetworkName>(value, isName, 'a letter or digit, then letters, digits, "_", "." or "-"'),
  mac(value: unknown): Mac {
    const pairs = typeof value === 'string' && /^(?:[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4})$/.test(value) ? (value.match(/[0-9a-fA-F]{2}/g) as string[]) : []
    // The kernel refuses group addresses and all zeros on a link (is_valid_ether_addr).
    if (pairs.length !== 6 || Number.parseInt(pairs[0] as string, 16) & 1 || pairs.every((pair) => pair === '00')) throw new ValueError(`${shown(value)}: want a unicast Ethernet address such as 02:00:0a:f4:00:02`)
    return pairs.join(':').toLowerCase() as Mac
  },
  port(value: unknown): Port {
    if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > 65535) throw new ValueError(`${shown(value)}: want a port, 1 to 65535`)
    return value as Port
  },
}

/** A name short enough to be part of a file name, a link alias or an nft comment: itself up to 100 characters, else `+` and a hash of it (no name starts with `+`). */
export function brief(name: string): string {
  return name.length <= 100 ? name : `+${new Bun.CryptoHasher('sha256').update(name).digest('hex').slice(0, 40)}`
}

function must<T>(value: unknown, test: (text: string) => boolean, want: string): T {
  if (typeof value !== 'string' || !test(value)) throw new ValueError(`${shown(value)}: want ${want}`)
  return value as T
}

function isName(text: string): boolean {
  return /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(text) && !text.endsWith('\n')
}

function isIfName(text: string): boolean {
  // Neither / : nor what a batch line would read as quote, comment or end. Spelled out: classes by Unicode property take 0.1 ms to compile.
  return text.length <= 15 && text !== '.' && text !== '..' && /^[!$-&(-.0-9;-[\]-~\u00a1-\ud7ff\ue000-\uffff]+$/.test(text) && !/\s/.test(text) && bytes(text) <= 15
}

// What `ip -batch` would take apart or read as a comment is refused: no path of a runtime holds it.
function isPath(text: string): boolean {
  return text.length <= 4095 && /^[!$-&(-[\]-~\u00a1-\ud7ff\ue000-\uffff]+$/.test(text) && !/\s/.test(text) && text.includes('/')
}

function bytes(text: string): number {
  return new TextEncoder().encode(text).length
}
