import type { Netns } from '../text/values.ts'
import type { Sign } from './libc.ts'
import { attributesOf, textOf } from './netlink-attributes.ts'
import { inside } from './netns.ts'
import { type Ear, listen } from './sockets.ts'

// struct nlmsghdr, and struct ifinfomsg before the attributes (linux/rtnetlink.h, linux/if_link.h).
const [MESSAGE_TYPE, MESSAGE_SOCKET, FAMILY, ATTRIBUTES] = [4, 12, 16, 32]
const [RTM_DELLINK, AF_UNSPEC, IFLA_IFNAME] = [17, 0, 3]
// NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN (linux/netfilter/nf_tables.h): a transaction is committed.
const NEWGEN = (10 << 8) | 15

/** What tells that a tool's work is done, though the kernel keeps the tool a while; closed by who asked for it. */
export interface Ending extends Sign {
  close(): void
}

/** What has to be heard from a tool's start, in its namespace and by it as well, which inherits it: for the kernel closes what listens to nft only when what is deleted is gone, and then the tool is who waits for that. Undefined for other tools, and for who may not listen. */
export function earOf(argv: readonly string[]): Ear | undefined {
  return argv.join(' ') === 'nft -f -' ? listening('nft') : undefined
}

/** Hears when the kernel has done what a tool is about to ask of it, where it keeps the tool much longer: until nobody can look any more at links that are gone, or at elements that are deleted (a grace period of RCU: 15 to 25 ms, which the tool sleeps). Called before the tool has its input; undefined where its own end is what counts. */
export function endingOf(argv: readonly string[], input: string, ns: Netns, { pid, ear }: { readonly pid: number; readonly ear?: Ear | undefined }): Ending | undefined {
  if (ear) return ending(ear, (message) => message.getUint16(MESSAGE_TYPE, true) === NEWGEN && message.getUint32(MESSAGE_SOCKET, true) === pid)
  const isLast = argv.join(' ') === 'ip -batch -' ? removal(input, pid) : undefined
  const own = isLast && listening('links', ns)
  return own && ending(own, isLast)
}

function ending({ fd, heard, close }: Ear, isLast: (message: DataView) => boolean): Ending {
  return {
    fd,
    isDone() {
      for (const message of heard()) if (isLast(message)) return true
      return false
    },
    close,
  }
}

// Who may not listen, or has no such namespace any more, waits for the tool's end.
function listening(group: Parameters<typeof listen>[0], ns: Netns = 'host'): Ear | undefined {
  try {
    return inside(ns, () => listen(group))
  } catch {
    return undefined
  }
}

const [DELETED, GROUP, SET] = ['link delete dev ', 'link delete group ', 'link set dev ']

// Without -force a line is tried only when those before it have succeeded: the last one says that all is done.
function removal(input: string, pid: number): ((message: DataView) => boolean) | undefined {
  const lines = input.trimEnd().split('\n')
  const last = lines[lines.length - 1] as string
  const name = last.startsWith(DELETED) ? last.slice(DELETED.length) : undefined
  const group = last.startsWith(GROUP) ? ` group ${last.slice(GROUP.length)}` : undefined
  const grouped = lines.flatMap((line) => (group && line.startsWith(SET) && line.endsWith(group) ? line.slice(SET.length, -group.length) : []))
  const names = new Set(name ? [name] : grouped)
  if (names.size === 0) return undefined
  // Before Linux 6.2, and for a group, the kernel does not tell at whose wish: then it is enough that the only wish has come true.
  const isAll = lines.length === 1 + grouped.length
  return (message) => {
    // A bridge says as much, of the family AF_BRIDGE, of a port that it loses.
    const isGone = message.getUint16(MESSAGE_TYPE, true) === RTM_DELLINK && message.getUint8(FAMILY) === AF_UNSPEC
    if (isGone && (message.getUint32(MESSAGE_SOCKET, true) === pid || isAll)) names.delete(textOf(attributesOf(message, ATTRIBUTES).get(IFLA_IFNAME)))
    return names.size === 0
  }
}
