import { NLM_F_DUMP } from './rtnetlink.ts'
import { netlink } from './sockets.ts'

const NETLINK_NETFILTER = 12
// linux/netfilter/nfnetlink.h and nf_tables.h
const NFNL_SUBSYS_NFTABLES = 10
const [GETTABLE, GETCHAIN, NEWRULE, GETRULE, NEWGEN, GETGEN] = [1, 4, 6, 7, 15, 16]
const [TABLE_NAME, CHAIN_TABLE, CHAIN_NAME, RULE_TABLE, RULE_CHAIN] = [1, 1, 3, 1, 2]
const FAMILIES = { inet: 1, ip: 2, ip6: 10 } as const
const NLM_F_REQUEST = 1
const NLMSG_ERROR = 2
// struct nlmsghdr and struct nfgenmsg, before the attributes.
const HEADERS = 20
// ENOENT; EINVAL and EOPNOTSUPP are the answers of a kernel without nf_tables.
const ABSENT = [-2, -22, -95]

type Family = keyof typeof FAMILIES

/** Whether nft has a table, or a chain of it, in this thread's namespace: asked of the kernel itself (nfnetlink), in microseconds and without a process. True also when the kernel would not say: then nft is asked. */
export function isThere(family: Family, table: string, chain?: string): boolean {
  const asked =
    chain === undefined
      ? question(GETTABLE, NLM_F_REQUEST, family, [[TABLE_NAME, table]])
      : question(GETCHAIN, NLM_F_REQUEST, family, [
          [CHAIN_TABLE, table],
          [CHAIN_NAME, chain],
        ])
  const [answer] = netlink(NETLINK_NETFILTER, asked)
  return !(answer?.getUint16(4, true) === NLMSG_ERROR && ABSENT.includes(answer.getInt32(16, true)))
}

/** How many rules each chain of an nft table has, chains without rules left out, asked as `isThere` asks: no element of a set is looked at, of which there may be many. */
export function ruleCounts(family: Family, table: string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const answer of netlink(NETLINK_NETFILTER, question(GETRULE, NLM_F_REQUEST | NLM_F_DUMP, family, [[RULE_TABLE, table]]))) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWRULE)) continue
    // Kernels before 5.x dump the rules of all tables.
    if (text(answer, RULE_TABLE) !== table) continue
    const chain = text(answer, RULE_CHAIN)
    counts.set(chain, (counts.get(chain) ?? 0) + 1)
  }
  return counts
}

/** How many rules a chain has, and whether one of them holds a word, such as the name of a chain that it jumps to: asked as `isThere` asks. No rules where there is no such chain. */
export function rulesOf(family: Family, table: string, chain: string, word: string): { readonly count: number; readonly has: boolean } {
  const asked = question(GETRULE, NLM_F_REQUEST | NLM_F_DUMP, family, [
    [RULE_TABLE, table],
    [RULE_CHAIN, chain],
  ])
  let [count, has] = [0, false]
  for (const answer of netlink(NETLINK_NETFILTER, asked)) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWRULE) || text(answer, RULE_TABLE) !== table || text(answer, RULE_CHAIN) !== chain) continue
    count++
    // A name ends with NUL, and begins after its attribute's type, whose high byte is 0.
    has ||= Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).includes(`\0${word}\0`)
  }
  return { count, has }
}

/** The number of the last transaction of this thread's namespace: each that is committed, whoever's, is one more. Undefined when the kernel would not say. */
export function generation(): number | undefined {
  // NFTA_GEN_ID comes first, in the network's byte order.
  for (const answer of netlink(NETLINK_NETFILTER, question(GETGEN, NLM_F_REQUEST, 'inet', []))) if (answer.getUint16(4, true) === ((NFNL_SUBSYS_NFTABLES << 8) | NEWGEN)) return answer.getUint32(HEADERS + 4)
  return undefined
}

function question(type: number, flags: number, family: Family, attributes: readonly (readonly [type: number, text: string])[]): Uint8Array {
  const parts = attributes.map(([kind, value]) => attribute(kind, value))
  const length = HEADERS + parts.reduce((sum, { length }) => sum + length, 0)
  const request = new Uint8Array(length)
  const view = new DataView(request.buffer)
  view.setUint32(0, length, true)
  view.setUint16(4, (NFNL_SUBSYS_NFTABLES << 8) | type, true)
  view.setUint16(6, flags, true)
  view.setUint8(16, FAMILIES[family])
  let at = HEADERS
  for (const one of parts) {
    request.set(one, at)
    at += one.length
  }
  return request
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

function text(message: DataView, type: number): string {
  for (let at = HEADERS, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4) break
    if (message.getUint16(at + 2, true) === type) return new TextDecoder().decode(new Uint8Array(message.buffer, message.byteOffset + at + 4, size - 5))
  }
  return ''
}
