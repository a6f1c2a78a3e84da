import { netlink } from './libc.ts'

const NETLINK_NETFILTER = 12
// linux/netfilter/nfnetlink.h and nf_tables.h
const NFNL_SUBSYS_NFTABLES = 10
const [GETTABLE, GETCHAIN] = [1, 4]
const [TABLE_NAME, CHAIN_TABLE, CHAIN_NAME] = [1, 1, 3]
const FAMILIES = { inet: 1, ip: 2, ip6: 10 } as const
const NLM_F_REQUEST = 1
const NLMSG_ERROR = 2
// ENOENT; EINVAL and EOPNOTSUPP are the answers of a kernel without nf_tables.
const ABSENT = [-2, -22, -95]

/** Whether nft has a table, or a chain of it, in this thread's namespace: asked of the kernel itself (nfnetlink), in microseconds and without a process. True also when the kernel would not say: then nft is asked. */
export function isThere(family: keyof typeof FAMILIES, table: string, chain?: string): boolean {
  const attributes = chain === undefined ? [attribute(TABLE_NAME, table)] : [attribute(CHAIN_TABLE, table), attribute(CHAIN_NAME, chain)]
  const length = 20 + attributes.reduce((sum, { length }) => sum + length, 0)
  const request = new Uint8Array(length)
  const view = new DataView(request.buffer)
  view.setUint32(0, length, true)
  view.setUint16(4, (NFNL_SUBSYS_NFTABLES << 8) | (chain === undefined ? GETTABLE : GETCHAIN), true)
  view.setUint16(6, NLM_F_REQUEST, true)
  view.setUint8(16, FAMILIES[family])
  let at = 20
  for (const one of attributes) {
    request.set(one, at)
    at += one.length
  }
  const answer = netlink(NETLINK_NETFILTER, request)
  return !(answer.getUint16(4, true) === NLMSG_ERROR && ABSENT.includes(answer.getInt32(16, true)))
}

// A text attribute: length, type, the text with its NUL, and up to the next multiple of four.
function attribute(type: number, text: string): Uint8Array {
  const bytes = new TextEncoder().encode(`${text}\0`)
  const out = new Uint8Array((4 + bytes.length + 3) & ~3)
  const view = new DataView(out.buffer)
  view.setUint16(0, 4 + bytes.length, true)
  view.setUint16(2, type, true)
  out.set(bytes, 4)
  return out
}
