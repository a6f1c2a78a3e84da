import { NoAnswer, readPiece } from './netlink-answer.ts'
import { attributesOf, attributeText } from './netlink-attributes.ts'
import { request } from './rtnetlink.ts'
import { type Listener, subscribe } from './sockets.ts'

// Constants of linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_log.h.
const NETLINK_NETFILTER = 12
const [HEADERS, NLM_F_ACK] = [20, 4]
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
  const messages: DataView[] = []
  readPiece(new DataView(piece.buffer, piece.byteOffset, piece.byteLength), true, messages)
  return messages.flatMap((message) => {
    if (message.byteLength < HEADERS || message.getUint16(4, true) !== ULOG_PACKET) return []
    const attributes = attributesOf(message, HEADERS)
    const packet = attributes.get(PAYLOAD)
    return packet ? { prefix: attributeText(attributes.get(PREFIX)), packet } : []
  })
}

// One message binds the group. It also asks for the bytes of each packet, at once. Numbers are in the network's byte
// order.
function configuration(group: number, bytes: number): Uint8Array {
  const word = (number: number) => [number >>> 24, number >>> 16, number >>> 8, number]
  // struct nfgenmsg.
  const body = Uint8Array.of(0, 0, group >> 8, group)
  return request(ULOG_CONFIG, body, NLM_F_ACK, [
    [CFG_CMD, Uint8Array.of(CMD_BIND)],
    [CFG_MODE, Uint8Array.of(...word(bytes), COPY_PACKET, 0)],
    [CFG_TIMEOUT, Uint8Array.of(...word(1))],
    [CFG_QTHRESH, Uint8Array.of(...word(1))],
  ])
}
