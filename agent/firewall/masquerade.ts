// This folder makes the agent's firewall rules. Begin with `ruleset` in this file. It writes the nft table. `table.ts`
// loads the table and keeps it. `forward.ts` adds rules to iptables, and `flannel-rules.ts` removes flannel's rules.
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'

/** The name of the agent's nft table. A second agent on the node appends its instance name. */
export const TABLE = 'plumb_agent'

/** The inputs of the rules. */
export interface Firewall {
  /** The networks of all nodes, and this node's part of them. */
  readonly networks: readonly Cidr[]
  readonly own: readonly Cidr[]
  /** `--ip-masq`. Without it, the table has sets alone. */
  readonly masquerade: boolean
  /** The networks that pods reach with their own address. */
  readonly keep: readonly Cidr[]
  /** Random source ports, so that flows of two nodes do not collide (`random-fully`). */
  readonly random: boolean
}

/** One transaction that replaces the table, whatever its content was. Pure. */
export function ruleset(name: string, firewall: Firewall): string {
  return `table inet ${name}\ndelete table inet ${name}\n${body(name, firewall)}`
}

/**
 * One transaction that updates an earlier table of the agent without deleting it. Each chain has either its old or its
 * new rules for a packet. When chains are replaced, the kernel has both for a moment. A packet may then meet the new
 * chain before it has rules, and the old chain after it lost its rules. It fails on a table of another shape. Pure.
 */
export function overlaid(name: string, firewall: Firewall): string {
  const kept = partsOf(firewall)
  const every = { ...firewall, networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr], masquerade: true }
  const all = [...partsOf(every), FORMER]
  const headOf = (part: string) => HEADS[part] ?? setHead(part.endsWith('6') ? 'ipv6_addr' : 'ipv4_addr')
  const declared = all.map((part) => `\t${part} { ${headOf(part)} }`)
  const each = all.map((part) => `${kept.includes(part) ? 'flush' : 'delete'} ${part.replace(' ', ` inet ${name} `)}`)
  // Flushes the rules first, because a set cannot be deleted while a rule uses it.
  const lines = [`table inet ${name} {`, ...declared, '}', `flush table inet ${name}`, ...each]
  return [...lines, body(name, firewall)].join('\n')
}

/** The names of all objects in the table, such as `set own4`. Pure. */
export function partsOf({ networks, masquerade }: Firewall): string[] {
  const families = [false, true].filter((six) => networks.some((one) => isSix(one) === six)).map((six) => (six ? 6 : 4))
  return [
    ...families.flatMap((n) => [`set network${n}`, `set own${n}`, `set keep${n}`]),
    ...(masquerade ? ['chain postrouting'] : []),
  ]
}

/** The transaction that removes the table. A missing table is no error. */
export function removal(name: string): string {
  return `table inet ${name}\ndelete table inet ${name}\n`
}

// Accepted what pods send. To accept ends a chain, and no other chain of the hook: it changed nothing but cost.
const FORMER = 'chain forward'
const HEADS: Readonly<Record<string, string>> = {
  'chain postrouting': 'type nat hook postrouting priority srcnat; policy accept;',
  [FORMER]: 'type filter hook forward priority filter; policy accept;',
}

function setHead(type: string): string {
  return `type ${type}; flags interval; auto-merge;`
}

function body(name: string, { networks, own, masquerade, keep, random }: Firewall): string {
  const verdict = `masquerade${random ? ' fully-random' : ''}`
  const families = [
    { ip: 'ip', n: 4, type: 'ipv4_addr', six: false, multicast: '224.0.0.0/4' },
    { ip: 'ip6', n: 6, type: 'ipv6_addr', six: true, multicast: 'ff00::/8' },
  ].filter(({ six }) => networks.some((one) => isSix(one) === six))
  const of = (six: boolean, all: readonly Cidr[]) => all.filter((one) => isSix(one) === six).join(', ')
  const set = (called: string, type: string, elements: string) =>
    `\tset ${called} { ${setHead(type)} ${elements ? `elements = { ${elements} }; ` : ''}}`
  const sets = families.flatMap(({ n, type, six, multicast }) => [
    set(`network${n}`, type, of(six, networks)),
    set(`own${n}`, type, of(six, own)),
    set(`keep${n}`, type, [multicast, of(six, keep)].filter(Boolean).join(', ')),
  ])
  // The rules of each family, in this order. Traffic to this node's pods keeps every client's address. Traffic from
  // this node's pods to any pods keeps the pods' addresses. Traffic from pods to other targets, nodes included, gets
  // the node's address. Traffic from other sources to pods of other nodes gets the node's address, because the answer
  // must return through this node.
  const rules = families.flatMap(({ ip, n }) => [
    `\t\t${ip} daddr @own${n} return`,
    `\t\t${ip} saddr @own${n} ${ip} daddr @network${n} return`,
    `\t\t${ip} saddr @network${n} ${ip} daddr != @keep${n} ${verdict}`,
    `\t\t${ip} saddr != @network${n} ${ip} daddr @network${n} ${verdict}`,
  ])
  const postrouting = [
    '\tchain postrouting {',
    `\t\t${HEADS['chain postrouting']}`,
    // kube-proxy masquerades packets with this mark itself.
    '\t\tmeta mark and 0x4000 == 0x4000 return',
    ...rules,
    '\t}',
  ]
  return [`table inet ${name} {`, ...sets, ...(masquerade ? postrouting : []), '}', ''].join('\n')
}
