import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Shape } from '../kernel/elements.ts'

// The fixed part of the nft table of policies. A packet of an established connection takes one rule. The first packet
// of a connection goes through the chain of its sender's address, and then through that of its receiver's. A chain
// sends on what it allows, and refuses the rest. An address of the node's subnet of no known pod is refused.

/** The name of the table. */
export const TABLE = 'plumb_policy'
/** The table with its family, as lines of nft name it. */
export const NAME = `inet ${TABLE}`

/** An IP family. */
export type Family = 4 | 6
/** The direction of a policy. */
export type Side = 'ingress' | 'egress'
/** Both families. */
export const FAMILIES: readonly Family[] = [4, 6]
/** Both directions. */
export const SIDES: readonly Side[] = ['ingress', 'egress']
/** The type of addresses. */
export const TYPE = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const

/** The maps from a local pod's address to its verdict. */
export type MapName = `${Side}${Family}`
/** The verdict for what is allowed in a direction. It ends the base chain of that direction, and no other. */
export const PASSES = 'accept'
/** The chains that refuse, by direction. */
export const DENIED: Readonly<Record<Side, string>> = { ingress: 'denied_in', egress: 'denied_out' }
/** The counter of packets from and to addresses of the node's subnet that belong to no known pod. */
export const UNKNOWN = 'unknown_address'

/** The sets and maps of the fixed part. */
export const SHAPES: Readonly<Record<string, Shape>> = Object.fromEntries(
  FAMILIES.flatMap((family) => [
    [`self${family}`, { key: [TYPE[family], TYPE[family]] }],
    ...SIDES.map((side) => [`${side}${family}`, { key: [TYPE[family]], value: 'verdict' }]),
  ]),
)

/** The bit of a connection's mark by which a policy has ended it. It drops the packets of both sides. */
export const ENDED_BIT = 0x1000
const BIT = `0x${ENDED_BIT.toString(16)}`

/** How the table treats what it refuses, and which addresses are pods'. */
export interface TableOptions {
  /** The node's subnets. */
  readonly subnets: readonly Cidr[]
  /** A statement of nft that logs what is refused, by the chain that refuses. Absent for none. */
  log?(chain: string): string
  /** Refuses nothing: counts and logs what would be refused. */
  readonly isAudit: boolean
  /** Policies end no connections. */
  readonly keepsEstablished?: boolean
}

/** The NFLOG group of refused packets. */
export const LOG_GROUP = 4792

/** The statement that sends a refused packet to the agent. Its limit keeps a flood cheap for the kernel and the log. */
export function logOf(chain: string): string {
  return `limit rate 10/second burst 50 packets log prefix "${chain}" group ${LOG_GROUP} snaplen 160`
}

/** A transaction that removes the table, also where there is none. */
export const REMOVE = `table ${NAME}\ndelete table ${NAME}\n`

// Without neighbour discovery a pod reaches nobody. Pods of one bridge do it across the bridge. What was routed has
// another hop limit, and is no neighbour discovery (RFC 4861, section 6.1).
const ND = 'ip6 hoplimit 255 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept'

/** The lines that make the table without policies, instead of any table that is there. */
export function fixed({ subnets, log, isAudit, keepsEstablished }: TableOptions): string[] {
  const wordOf = (family: Family) => (family === 6 ? 'ip6' : 'ip')
  const word = (subnet: Cidr) => wordOf(isSix(subnet) ? 6 : 4)
  const refuse = (chain: string) => [...(log ? [log(chain)] : []), isAudit ? PASSES : 'drop']
  const unknown = (end: 'saddr' | 'daddr') => subnets.map((subnet) => `${word(subnet)} ${end} ${subnet} goto unknown`)
  const senders = ['ip saddr vmap @egress4', 'ip6 saddr vmap @egress6', ...unknown('saddr')]
  // The first packet of a connection may have a mark of the Services, and meets the rules all the same.
  const ended = `ct mark and ${BIT} == ${BIT} ct state established,related drop comment "ended by a policy"`
  const known = [...(isAudit || keepsEstablished ? [] : [ended]), 'ct state established,related accept']
  const declaration = (name: string, { key, value }: Shape) => {
    const target = value ? ` : ${value}` : ''
    return `  ${value ? 'map' : 'set'} ${name} { type ${key.join(' . ')}${target}; }`
  }
  const chains: Readonly<Record<string, readonly string[]>> = {
    denied_in: refuse('denied_in'),
    denied_out: refuse('denied_out'),
    unknown: [`counter name ${UNKNOWN}`, ...refuse('unknown')],
    // What pods send to pods and to the world. Two base chains, for the kernel walks each way through the chains at
    // every change of one of them: with one, that is the product of both directions.
    forward_out: ['type filter hook forward priority filter; policy accept;', ...known, ND, ...senders],
    forward_in: [
      'type filter hook forward priority filter + 1; policy accept;',
      ...known,
      ND,
      'ip daddr vmap @ingress4',
      'ip6 daddr vmap @ingress6',
      ...unknown('daddr'),
    ],
    // What pods send to the node itself. What the node sends to its pods, such as probes, meets none of these.
    input: ['type filter hook input priority filter; policy accept;', 'iif lo accept', ...known, ND, ...senders],
  }
  const order = ['denied_in', 'denied_out', 'unknown', 'forward_out', 'forward_in', 'input']
  return [
    `table ${NAME}`,
    `delete table ${NAME}`,
    `table ${NAME} {`,
    `  counter ${UNKNOWN} { }`,
    ...Object.entries(SHAPES).map(([name, shape]) => declaration(name, shape)),
    ...order.flatMap((name) => [`  chain ${name} {`, ...(chains[name] ?? []).map((line) => `    ${line}`), '  }']),
    '}',
  ]
}
