import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'

/** The agent's own nft table; a second agent on the node has its instance's name behind it. */
export const TABLE = 'plumb_agent'

/** What the rules are made of. */
export interface Firewall {
  /** The networks of all nodes, and this node's part of them. */
  readonly networks: readonly Cidr[]
  readonly own: readonly Cidr[]
  /** `--ip-masq`: without it only what is forwarded is accepted. */
  readonly masquerade: boolean
  /** Where pods go under their own address. */
  readonly keep: readonly Cidr[]
  /** Source ports are chosen at random, so that two nodes' flows do not meet (`random-fully`). */
  readonly random: boolean
}

/** The table as one transaction that puts it in the place of whatever it was before. Pure. */
export function ruleset(name: string, firewall: Firewall): string {
  return `table inet ${name}\ndelete table inet ${name}\n${body(name, firewall)}`
}

/** The same over an earlier table of ours, which stays: each of its chains has the old rules for a packet, or the new ones. Of chains that go and come the kernel knows both for a moment, and a packet may meet the new one without its rules yet and the old one without them any more. Fails on a table of another shape. Pure. */
export function overlaid(name: string, firewall: Firewall): string {
  const kept = partsOf(firewall)
  const all = partsOf({ ...firewall, networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr], masquerade: true })
  const declared = all.map((part) => `\t${part} { ${HEADS[part] ?? setHead(part.endsWith('6') ? 'ipv6_addr' : 'ipv4_addr')} }`)
  const each = all.map((part) => `${kept.includes(part) ? 'flush' : 'delete'} ${part.replace(' ', ` inet ${name} `)}`)
  // The rules first: as long as they name a set it cannot go.
  return [`table inet ${name} {`, ...declared, '}', `flush table inet ${name}`, ...each, body(name, firewall)].join('\n')
}

/** What stands in the table, `set own4` and so on. Pure. */
export function partsOf({ networks, masquerade }: Firewall): string[] {
  const families = [false, true].filter((six) => networks.some((one) => isSix(one) === six)).map((six) => (six ? 6 : 4))
  return [...families.flatMap((n) => [`set network${n}`, `set own${n}`, `set keep${n}`]), ...(masquerade ? ['chain postrouting'] : []), 'chain forward']
}

/** The transaction that removes the table; no error when there is none. */
export function removal(name: string): string {
  return `table inet ${name}\ndelete table inet ${name}\n`
}

const HEADS: Readonly<Record<string, string>> = {
  'chain postrouting': 'type nat hook postrouting priority srcnat; policy accept;',
  'chain forward': 'type filter hook forward priority filter; policy accept;',
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
  const set = (called: string, type: string, elements: string) => `\tset ${called} { ${setHead(type)} ${elements ? `elements = { ${elements} }; ` : ''}}`
  const sets = families.flatMap(({ n, type, six, multicast }) => [set(`network${n}`, type, of(six, networks)), set(`own${n}`, type, of(six, own)), set(`keep${n}`, type, [multicast, of(six, keep)].filter(Boolean).join(', '))])
  // In this order, for each family. To our pods: the client keeps its address, whoever it is. From our pods to pods: so do they.
  // From pods to elsewhere, the nodes too: the node's address. From elsewhere to pods of other nodes: the answer has to come back through here.
  const rules = families.flatMap(({ ip, n }) => [
    `\t\t${ip} daddr @own${n} return`,
    `\t\t${ip} saddr @own${n} ${ip} daddr @network${n} return`,
    `\t\t${ip} saddr @network${n} ${ip} daddr != @keep${n} ${verdict}`,
    `\t\t${ip} saddr != @network${n} ${ip} daddr @network${n} ${verdict}`,
  ])
  const postrouting = [
    '\tchain postrouting {',
    `\t\t${HEADS['chain postrouting']}`,
    // kube-proxy masquerades these itself.
    '\t\tmeta mark and 0x4000 == 0x4000 return',
    ...rules,
    '\t}',
  ]
  const forward = ['\tchain forward {', `\t\t${HEADS['chain forward']}`, ...families.flatMap(({ ip, n }) => [`\t\t${ip} saddr @network${n} accept`, `\t\t${ip} daddr @network${n} accept`]), '\t}']
  return [`table inet ${name} {`, ...sets, ...(masquerade ? postrouting : []), ...forward, '}', ''].join('\n')
}
