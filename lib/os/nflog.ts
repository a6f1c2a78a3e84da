import { NoAnswer } from './netlink-answer.ts'
import { attributesOf, attributeText } from './netlink-attributes.ts'
import { type Listener, subscribe } from './sockets.ts'

// Constants of linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_log.h.
const NETLINK_NETFILTER = 12
const [NLMSG_HEADER, HEADERS] = [16, 20]
const [NLM_F_REQUEST, NLM_F_ACK] = [1, 4]
const [ULOG_PACKET, ULOG_CONFIG] = [0x400, 0x401]
const [CFG_CMD, CFG_MODE, CFG_TIMEOUT, CFG_QTHRESH] = [1, 2, 4, 5]
const [CMD_BIND, COPY_PACKET] = [1, 2]
const [PAYLOAD, PREFIX] = [9, 10]
/** The size of the receive buffer. The limit of the rules keeps it almost empty. */
const ROOM_BYTES = 1 << 18
const ERRNO: Readonly<Record<number, string>> = {
  1: 'EPERM: it needs CAP_NET_ADMIN',
  16: 'EBUSY: another program reads this group',
  22: 'EINVAL: the kernel has no nfnetlink_log',
}

/** A packet that a rule of nft logged: the rule's prefix, and the first bytes from the IP header on. */
export interface Logged {
  readonly prefix: string
  readonly packet: DataView
}

/**
 * Begins to receive the packets of a group of NFLOG (`log group` of nft(8)) in this thread's namespace. `bytes` is how
 * much of a packet is wanted. Throws Error when the kernel refuses, for example because another program reads it.
 */
export function listenToLog(group: number, bytes: number): Listener {
  try {
    return subscribe(NETLINK_NETFILTER, configuration(group, bytes), ROOM_BYTES)
  } catch (cause) {
    const why = cause instanceof NoAnswer && cause.errno !== undefined ? ERRNO[cause.errno] : undefined
    throw new Error(`NFLOG group ${group}: ${why ?? (cause as Error).message}`, { cause })
  }
}

/** The logged packets in a piece of the kernel's messages. Pure. */
export function loggedIn(piece: Uint8Array): Logged[] {
  const [view, found]: [DataView, Logged[]] = [new DataView(piece.buffer, piece.byteOffset, piece.byteLength), []]
  for (let at = 0, size = 0; at + NLMSG_HEADER <= piece.length; at += (size + 3) & ~3) {
    size = view.getUint32(at, true)
    if (size < NLMSG_HEADER || at + size > piece.length) break
    if (view.getUint16(at + 4, true) !== ULOG_PACKET || size < HEADERS) continue
    const attributes = attributesOf(new DataView(piece.buffer, piece.byteOffset + at, size), HEADERS)
    const packet = attributes.get(PAYLOAD)
    if (packet) found.push({ prefix: attributeText(attributes.get(PREFIX)), packet })
  }
  return found
}

// One message binds the group. It also asks for the bytes of each packet, at once.
function configuration(group: number, bytes: number): Uint8Array {
  const attributes: readonly (readonly [type: number, length: number, write: (view: DataView) => void])[] = [
    [CFG_CMD, 1, (view) => view.setUint8(0, CMD_BIND)],
    [CFG_MODE, 6, (view) => [view.setUint32(0, bytes), view.setUint8(4, COPY_PACKET)]],
    [CFG_TIMEOUT, 4, (view) => view.setUint32(0, 1)],
    [CFG_QTHRESH, 4, (view) => view.setUint32(0, 1)],
  ]
  const size = attributes.reduce((sum, [, length]) => sum + 4 + ((length + 3) & ~3), HEADERS)
  const message = new DataView(new ArrayBuffer(size))
  message.setUint32(0, size, true)
  message.setUint16(4, ULOG_CONFIG, true)
  message.setUint16(6, NLM_F_REQUEST | NLM_F_ACK, true)
  // struct nfgenmsg has the group in the network's byte order.
  message.setUint16(NLMSG_HEADER + 2, group)
  let at = HEADERS
  for (const [type, length, write] of attributes) {
    message.setUint16(at, 4 + length, true)
    message.setUint16(at + 2, type, true)
    write(new DataView(message.buffer, at + 4, length))
    at += 4 + ((length + 3) & ~3)
  }
  return new Uint8Array(message.buffer)
}
