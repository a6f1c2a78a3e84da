import { bytes } from './libc.ts'
import { attributesOf, attributeText } from './netlink-attributes.ts'
import { NLM_F_DUMP, request } from './rtnetlink.ts'
import { netlink } from './sockets.ts'

const NETLINK_NETFILTER = 12
// linux/netfilter/nfnetlink.h and nf_tables.h
const NFNL_SUBSYS_NFTABLES = 10
const [GETTABLE, NEWCHAIN, GETCHAIN, NEWRULE, GETRULE, NEWSET, GETSET, NEWGEN, GETGEN] = [1, 3, 4, 6, 7, 9, 10, 15, 16]
const [TABLE_NAME, TABLE_FLAGS, CHAIN_TABLE, CHAIN_NAME, CHAIN_POLICY, CHAIN_USE] = [1, 2, 1, 3, 5, 6]
const [RULE_TABLE, RULE_CHAIN, SET_TABLE, SET_NAME] = [1, 2, 1, 2]
/** Flag of a table that the kernel does not use. */
const DORMANT = 1
// linux/netfilter.h
const NF_DROP = 0
const [NEWOBJ, GETOBJ] = [18, 19]
const [NEWFLOWTABLE, GETFLOWTABLE] = [22, 23]
const [FLOWTABLE_TABLE, FLOWTABLE_NAME, FLOWTABLE_HOOK, HOOK_DEVS] = [1, 2, 3, 3]
const [OBJ_TABLE, OBJ_NAME, OBJ_TYPE, OBJ_DATA, COUNTER, COUNTER_PACKETS] = [1, 2, 3, 4, 1, 2]
const FAMILIES = { inet: 1, ip: 2, bridge: 7, ip6: 10 } as const
const NLMSG_HEADER = 16
// The size of struct nlmsghdr and struct nfgenmsg, which stand before the attributes.
const HEADERS = 20
// NFT_NAME_MAXLEN, without the NUL.
const LONGEST_NAME = 255
// ENOENT means absent. EINVAL and EOPNOTSUPP are the answers of a kernel without nf_tables.
const ABSENT = [2, 22, 95]

type Family = keyof typeof FAMILIES

/**
 * Whether nft has a table, or a chain of that table, in this thread's namespace. Asks the kernel directly (nfnetlink),
 * in microseconds and without a subprocess. Throws NoAnswer.
 */
export function isThere(family: Family, table: string, chain?: string): boolean {
  // A container ID may make a name that no chain can have, and that does not fit into a request.
  if (chain !== undefined && chain.length > LONGEST_NAME) return false
  const found =
    chain === undefined
      ? asking(GETTABLE, 0, family, [[TABLE_NAME, table]])
      : asking(GETCHAIN, 0, family, [
          [CHAIN_TABLE, table],
          [CHAIN_NAME, chain],
        ])
  return found.length > 0
}

/**
 * The number of rules of each chain in an nft table. Chains without rules are absent. Asks the kernel directly like
 * `isThere`. Never reads the elements of sets, because there may be many.
 */
export function ruleCounts(family: Family, table: string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const answer of asking(GETRULE, NLM_F_DUMP, family, [[RULE_TABLE, table]])) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWRULE)) continue
    // Kernels before 5.x dump the rules of all tables.
    if (text(answer, RULE_TABLE) !== table) continue
    const chain = text(answer, RULE_CHAIN)
    counts.set(chain, (counts.get(chain) ?? 0) + 1)
  }
  return counts
}

/**
 * The number of uses of each chain in an nft table. Uses are the chain's rules and the jumps to the chain. Asks the
 * kernel directly like `isThere`. Takes 40 µs, and `ruleCounts` 180 µs, because here the kernel sends no rules.
 */
export function chainUses(family: Family, table: string): Map<string, number> {
  const uses = new Map<string, number>()
  for (const answer of asking(GETCHAIN, NLM_F_DUMP, family, [])) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWCHAIN)) continue
    if (text(answer, CHAIN_TABLE) !== table) continue
    // In network byte order.
    uses.set(text(answer, CHAIN_NAME), attribute(answer, CHAIN_USE)?.getUint32(0) ?? 0)
  }
  return uses
}

/**
 * Whether a table of plumb is there and works as plumb made it. It does not when another program has made it dormant, or
 * a base chain of it drop what meets no rule. All of plumb's base chains accept. Asks the kernel directly like `isThere`.
 */
export function isInForce(family: Family, table: string): boolean {
  const [found] = asking(GETTABLE, 0, family, [[TABLE_NAME, table]])
  // In network byte order.
  if (!found || ((attribute(found, TABLE_FLAGS)?.getUint32(0) ?? 0) & DORMANT) !== 0) return false
  return !asking(GETCHAIN, NLM_F_DUMP, family, []).some(
    (answer) => text(answer, CHAIN_TABLE) === table && attribute(answer, CHAIN_POLICY)?.getUint32(0) === NF_DROP,
  )
}

/** The names of the sets and maps of an nft table, without their elements. Asks the kernel directly like `isThere`. */
export function setNames(family: Family, table: string): string[] {
  return asking(GETSET, NLM_F_DUMP, family, [[SET_TABLE, table]]).flatMap((answer) => {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWSET)) return []
    return text(answer, SET_TABLE) === table ? [text(answer, SET_NAME)] : []
  })
}

/**
 * The number of rules of a chain, and whether one rule contains a word, such as the name of a chain to which it jumps.
 * Asks the kernel directly like `isThere`. A chain that does not exist has no rules.
 */
export function rulesOf(
  family: Family,
  table: string,
  chain: string,
  word: string,
): { readonly count: number; readonly has: boolean } {
  let [count, has] = [0, false]
  const inChain = [
    [RULE_TABLE, table],
    [RULE_CHAIN, chain],
  ] as const
  for (const answer of asking(GETRULE, NLM_F_DUMP, family, inChain)) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWRULE)) continue
    if (text(answer, RULE_TABLE) !== table || text(answer, RULE_CHAIN) !== chain) continue
    count++
    has ||= holds(answer, word)
  }
  return { count, has }
}

/**
 * The packets that a named counter of an nft table has counted. Undefined when there is no such counter. Asks the kernel
 * directly like `isThere`.
 */
export function countedPackets(family: Family, table: string, name: string): number | undefined {
  const body = new Uint8Array(HEADERS - NLMSG_HEADER)
  body[0] = FAMILIES[family]
  const asked = request((NFNL_SUBSYS_NFTABLES << 8) | GETOBJ, body, 0, [
    [OBJ_TABLE, bytes(table)],
    [OBJ_NAME, bytes(name)],
    [OBJ_TYPE, Uint8Array.of(0, 0, 0, COUNTER)],
  ])
  for (const answer of netlink(NETLINK_NETFILTER, asked, ABSENT)) {
    if (answer.getUint16(4, true) !== ((NFNL_SUBSYS_NFTABLES << 8) | NEWOBJ)) continue
    const data = attributesOf(answer, HEADERS).get(OBJ_DATA)
    const packets = data && attributesOf(data).get(COUNTER_PACKETS)
    // In network byte order, with the higher half first.
    return packets && packets.getUint32(0) * 2 ** 32 + packets.getUint32(4)
  }
  return undefined
}

/**
 * The names of the devices of a flowtable. Undefined when there is no such flowtable. Asks the kernel directly like
 * `isThere`.
 */
export function flowtableDevices(family: Family, table: string, name: string): readonly string[] | undefined {
  const found = asking(GETFLOWTABLE, 0, family, [
    [FLOWTABLE_TABLE, table],
    [FLOWTABLE_NAME, name],
  ]).find((answer) => answer.getUint16(4, true) === ((NFNL_SUBSYS_NFTABLES << 8) | NEWFLOWTABLE))
  if (!found) return undefined
  const hook = attributesOf(found, HEADERS).get(FLOWTABLE_HOOK)
  const devices = hook && attributesOf(hook).get(HOOK_DEVS)
  // A list of attributes of one type: the names.
  const names: string[] = []
  for (let at = 0, size = 0; devices && at + 4 <= devices.byteLength; at += (size + 3) & ~3) {
    size = devices.getUint16(at, true)
    if (size < 4 || at + size > devices.byteLength) break
    names.push(attributeText(new DataView(devices.buffer, devices.byteOffset + at + 4, size - 4)))
  }
  return names
}

/**
 * The number of the last nft transaction of this thread's namespace. Every commit by any program adds one. Undefined
 * for a kernel without nf_tables. Throws NoAnswer.
 */
export function generation(): number | undefined {
  // NFTA_GEN_ID comes first, in network byte order.
  for (const answer of asking(GETGEN, 0, 'inet', []))
    if (answer.getUint16(4, true) === ((NFNL_SUBSYS_NFTABLES << 8) | NEWGEN)) return answer.getUint32(HEADERS + 4)
  return undefined
}

// Without the table, the chain or nf_tables there is nothing of what is asked for.
function asking(
  type: number,
  flags: number,
  family: Family,
  attributes: readonly (readonly [type: number, text: string])[],
): readonly DataView[] {
  const body = new Uint8Array(HEADERS - NLMSG_HEADER)
  body[0] = FAMILIES[family]
  const named = attributes.map(([kind, text]) => [kind, bytes(text)] as const)
  const asked = request((NFNL_SUBSYS_NFTABLES << 8) | type, body, flags, named)
  return netlink(NETLINK_NETFILTER, asked, ABSENT)
}

// Searches single attributes, because most attributes of a rule are not needed.
function text(message: DataView, type: number): string {
  return attributeText(attribute(message, type))
}

function attribute(message: DataView, type: number): DataView | undefined {
  for (let at = HEADERS, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4) break
    if (message.getUint16(at + 2, true) === type)
      return new DataView(message.buffer, message.byteOffset + at + 4, size - 4)
  }
  return undefined
}

// A name begins after its attribute's type, whose high byte is 0, and ends with NUL.
function holds(message: DataView, word: string): boolean {
  for (let at = HEADERS; at + word.length + 2 <= message.byteLength; at++) {
    if (message.getUint8(at) !== 0) continue
    let same = 0
    while (same < word.length && message.getUint8(at + 1 + same) === word.charCodeAt(same)) same++
    if (same === word.length && message.getUint8(at + 1 + same) === 0) return true
  }
  return false
}
