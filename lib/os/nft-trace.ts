import { attributesOf, attributeText, numberOf } from './netlink-attributes.ts'

// The kernel's messages about packets with `nftrace` (linux/netfilter/nf_tables.h, enum nft_trace_attributes).
const TRACE = (10 << 8) | 17
const [TABLE, CHAIN, HANDLE, TYPE, VERDICT, ID, NETWORK, TRANSPORT] = [1, 2, 3, 4, 5, 6, 8, 9]
const [IIF, OIF, POLICY] = [10, 12, 16]
const [VERDICT_CODE, VERDICT_CHAIN] = [1, 2]
const KINDS = ['', 'policy', 'return', 'rule'] as const
const VERDICTS: Readonly<Record<number, string>> = {
  0: 'drop',
  1: 'accept',
  2: 'stolen',
  3: 'queue',
  [-1]: 'continue',
  [-2]: 'break',
  [-3]: 'jump',
  [-4]: 'goto',
  [-5]: 'return',
}
const FAMILIES: Readonly<Record<number, string>> = { 1: 'inet', 2: 'ip', 5: 'netdev', 7: 'bridge', 10: 'ip6' }
// The size of struct nlmsghdr and struct nfgenmsg.
const [NLMSG_HEADER, HEADERS] = [16, 20]

/** What nft did with a packet at one rule, or at the end of a chain. */
export interface Traced {
  /** The packet. The kernel gives the same number to all messages about one packet in one namespace. */
  readonly id: number
  readonly family: string
  readonly table: string
  readonly chain: string
  readonly kind: (typeof KINDS)[number]
  /** The handle of the rule. Undefined at the end of a chain. */
  readonly handle?: bigint
  /** `accept`, `drop`, `continue`, `jump` or another word of nft. */
  readonly verdict: string
  /** The chain of a jump. */
  readonly target?: string
  /** The indexes of the links. The first message of each base chain has them, and the headers. */
  readonly iif?: number
  readonly oif?: number
  /** The first 40 bytes from the IP header on, and the first 20 bytes from the next header on. */
  readonly network?: DataView
  readonly transport?: DataView
}

/** Reads a message of the group `traces` (`listen` in sockets.ts). Undefined for any other message. Pure. */
export function tracedIn(message: DataView): Traced | undefined {
  if (message.byteLength < HEADERS || message.getUint16(4, true) !== TRACE) return undefined
  const attributes = attributesOf(message, HEADERS)
  // Numbers are in network byte order.
  const number = (type: number) => attributes.get(type)?.getUint32(0)
  const verdict = attributes.get(VERDICT)
  const inner = verdict && attributesOf(verdict)
  const code = inner?.get(VERDICT_CODE)?.getInt32(0) ?? attributes.get(POLICY)?.getInt32(0) ?? -1
  const [handle, iif, oif] = [attributes.get(HANDLE)?.getBigUint64(0), number(IIF), number(OIF)]
  const [network, transport, target] = [attributes.get(NETWORK), attributes.get(TRANSPORT), inner?.get(VERDICT_CHAIN)]
  return {
    id: numberOf(attributes.get(ID)) ?? 0,
    family: FAMILIES[message.getUint8(NLMSG_HEADER)] ?? '',
    table: attributeText(attributes.get(TABLE)),
    chain: attributeText(attributes.get(CHAIN)),
    kind: KINDS[number(TYPE) ?? 0] ?? '',
    verdict: VERDICTS[code] ?? String(code),
    ...(handle !== undefined && { handle }),
    ...(target && { target: attributeText(target) }),
    ...(iif !== undefined && { iif }),
    ...(oif !== undefined && { oif }),
    ...(network && { network }),
    ...(transport && { transport }),
  }
}
