import { inside } from '../../lib/os/netns.ts'
import { netlink } from '../../lib/os/sockets.ts'
import { parse } from '../../lib/text/values.ts'
import type { Namespace } from './harness.ts'

const NETLINK_NETFILTER = 12
// linux/netfilter/nfnetlink.h and nf_tables.h
const [NFNL_SUBSYS_NFTABLES, BATCH_BEGIN, BATCH_END, NEWTABLE, NEWSET] = [10, 16, 17, 0, 9]
const [NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE] = [1, 4, 0x400]
const NFPROTO_INET = 1
// Attributes of a table and of a set.
const [TABLE_NAME, SET_TABLE, SET_NAME, SET_FLAGS, SET_KEY_TYPE, SET_KEY_LEN, SET_ID] = [1, 1, 2, 3, 4, 5, 10]

/**
 * Makes a table `inet newer` on a node. The keys of its set are of a kind that no nft knows yet, as if a program newer
 * than the node's nft had made it.
 */
export function makeNewer(node: Namespace): void {
  const set = [
    text(SET_TABLE, 'newer'),
    text(SET_NAME, 'unheard'),
    number(SET_FLAGS, 0),
    number(SET_KEY_TYPE, 61),
    number(SET_KEY_LEN, 4),
    number(SET_ID, 1),
  ]
  const batch = Buffer.concat([
    message(BATCH_BEGIN, 0, []),
    message((NFNL_SUBSYS_NFTABLES << 8) | NEWTABLE, NLM_F_CREATE, [text(TABLE_NAME, 'newer')]),
    // The kernel acknowledges the last message. It reports an error of the others anyway.
    message((NFNL_SUBSYS_NFTABLES << 8) | NEWSET, NLM_F_CREATE | NLM_F_ACK, set),
    message(BATCH_END, 0, []),
  ])
  inside(parse.netns(node.path), () => netlink(NETLINK_NETFILTER, batch))
}

// struct nlmsghdr, struct nfgenmsg, attributes; a batch's ends name the subsystem.
function message(type: number, flags: number, attributes: readonly Buffer[]): Buffer {
  const isEnd = type === BATCH_BEGIN || type === BATCH_END
  const body = Buffer.concat(attributes)
  const head = Buffer.alloc(20)
  head.writeUInt32LE(20 + body.length, 0)
  head.writeUInt16LE(type, 4)
  head.writeUInt16LE(NLM_F_REQUEST | flags, 6)
  head.writeUInt8(isEnd ? 0 : NFPROTO_INET, 16)
  head.writeUInt16BE(isEnd ? NFNL_SUBSYS_NFTABLES : 0, 18)
  return Buffer.concat([head, body])
}

function number(type: number, value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return attribute(type, bytes)
}

function text(type: number, value: string): Buffer {
  return attribute(type, Buffer.from(`${value}\0`))
}

function attribute(type: number, value: Buffer): Buffer {
  const out = Buffer.alloc((4 + value.length + 3) & ~3)
  out.writeUInt16LE(4 + value.length, 0)
  out.writeUInt16LE(type, 2)
  value.copy(out, 4)
  return out
}
