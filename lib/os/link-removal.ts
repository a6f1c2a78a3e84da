import type { Netns } from '../text/values.ts'
import type { Sign } from './libc.ts'
import { attributesOf, attributeText, numberOf } from './netlink-attributes.ts'
import { inside } from './netns.ts'
import { type Listener, listen } from './sockets.ts'

// struct nlmsghdr, and struct ifinfomsg before the attributes (linux/rtnetlink.h, linux/if_link.h).
const [MESSAGE_TYPE, MESSAGE_SOCKET, FAMILY, ATTRIBUTES] = [4, 12, 16, 32]
const [RTM_DELLINK, AF_UNSPEC, IFLA_IFNAME, IFLA_GROUP] = [17, 0, 3, 27]
// NFNL_SUBSYS_NFTABLES and NFT_MSG_NEWGEN (linux/netfilter/nf_tables.h). The kernel sends it after each transaction.
const NEWGEN = (10 << 8) | 15

/**
 * A sign that a tool's work is done, although the kernel still holds up the tool. The caller of `endingOf` closes it.
 */
export interface Ending extends Sign {
  close(): void
}

/**
 * The socket that must listen in the tool's namespace before the tool starts. Only nft needs it. The tool inherits the
 * socket. The kernel closes a socket that listens to nft only after the deleted objects are gone. With the inherited
 * socket the tool waits for that, and plumb does not. Undefined for other tools, and when this process may not listen.
 */
export function listenerOf(argv: readonly string[]): Listener | undefined {
  return argv.join(' ') === 'nft -f -' ? listening('nft') : undefined
}

/**
 * Listens for the moment when the kernel has done the work of a tool. After that moment the kernel holds up the tool
 * for another 15 to 25 ms. The tool sleeps during an RCU grace period, until no CPU can still read the removed links or
 * the deleted elements. Called before the tool gets its input. Undefined when the end of the tool itself counts.
 */
export function endingOf(
  argv: readonly string[],
  input: string,
  ns: Netns,
  { pid, listener }: { readonly pid: number; readonly listener?: Listener | undefined },
): Ending | undefined {
  if (listener) {
    const isOwn = (message: DataView) => message.getUint32(MESSAGE_SOCKET, true) === pid
    return ending(listener, (message) => message.getUint16(MESSAGE_TYPE, true) === NEWGEN && isOwn(message))
  }
  const isLast = argv.join(' ') === 'ip -batch -' ? removal(input) : undefined
  const own = isLast && listening('links', ns)
  return own && ending(own, isLast)
}

function ending({ fd, messages, close }: Listener, isLast: (message: DataView) => boolean): Ending {
  return {
    fd,
    isDone() {
      for (const message of messages()) if (isLast(message)) return true
      return false
    },
    close,
  }
}

// A process that may not listen, or whose namespace is gone, waits for the tool's end.
function listening(group: Parameters<typeof listen>[0], ns: Netns = 'host'): Listener | undefined {
  try {
    return inside(ns, () => listen(group))
  } catch {
    return undefined
  }
}

const [DELETION, SET] = ['link delete group ', 'link set dev ']

// The kernel reports a deleted link with its group. It does not say who deleted the link, unless the request asked for
// an echo (NLM_F_ECHO), and `ip` does not ask. But a link has this group only when the tool has run the line that sets
// the group. Without -force, ip runs a line only after all earlier lines have succeeded. So only the deletion of the
// group is left, and it cannot meet a later link of the same name. It does not matter who deleted this one.
function removal(input: string): ((message: DataView) => boolean) | undefined {
  const lines = input.trimEnd().split('\n')
  const last = lines[lines.length - 1] as string
  if (!last.startsWith(DELETION)) return undefined
  const group = last.slice(DELETION.length)
  const isSetting = (line: string) => line.startsWith(SET) && line.endsWith(` group ${group}`)
  const names = new Set(lines.filter(isSetting).map((line) => line.slice(SET.length, -` group ${group}`.length)))
  if (names.size === 0) return undefined
  return (message) => {
    // When a bridge loses a port, it sends a similar message with the family AF_BRIDGE.
    if (message.getUint16(MESSAGE_TYPE, true) !== RTM_DELLINK || message.getUint8(FAMILY) !== AF_UNSPEC) return false
    const attributes = attributesOf(message, ATTRIBUTES)
    if (numberOf(attributes.get(IFLA_GROUP)) === Number(group)) names.delete(attributeText(attributes.get(IFLA_IFNAME)))
    return names.size === 0
  }
}
