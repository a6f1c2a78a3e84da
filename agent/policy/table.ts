import { type Compiled, MAPS, type NftSet } from './compile.ts'

// The nft table of policies, as transactions. A packet of an established connection takes one rule. The first packet of a connection goes through the chain of its
// sender's address, then through that of its receiver's. A chain returns for what it allows, and drops the rest.

/** The name of the table. */
export const TABLE = 'plumb_policy'

const NAME = `inet ${TABLE}`
/** Elements in one line: nft reads a line as a whole. */
const CHUNK = 1000

/** A transaction that makes the table of `wanted`, whatever was there before. */
export function load(wanted: Compiled): string {
  return [`table ${NAME}`, `delete table ${NAME}`, ...HEAD, ...step(EMPTY, wanted), ''].join('\n')
}

/** A transaction that removes the table, also where there is none. */
export const REMOVE = `table ${NAME}\ndelete table ${NAME}\n`

/**
 * The lines that lead from one state to another, as one transaction; none when nothing differs. New sets and chains come first, then the elements that lead to
 * them. What nothing leads to any more goes last.
 */
export function step(before: Compiled, after: Compiled): string[] {
  const lines: string[] = []
  const gone: string[] = []
  for (const [name, set] of after.sets) {
    const had = before.sets.get(name)
    if (!had && !isFixed(name)) lines.push(`add set ${NAME} ${name} { type ${set.type};${set.isInterval ? ' flags interval;' : ''} }`)
    lines.push(...elements('delete', name, without(had, set)), ...elements('add', name, without(set, had)))
  }
  for (const [name, rules] of after.chains)
    if (!before.chains.has(name)) {
      lines.push(`add chain ${NAME} ${name}`)
      for (const rule of rules) lines.push(`add rule ${NAME} ${name} ${rule}`)
    }
  for (const map of MAPS) {
    const [had, wants] = [before.maps[map], after.maps[map]]
    const changed = [...wants].filter(([ip, chain]) => had.get(ip) !== chain)
    const dropped = [...had.keys()].filter((ip) => !wants.has(ip))
    lines.push(
      ...elements('delete', map, [...dropped, ...changed.flatMap(([ip]) => (had.has(ip) ? [ip] : []))]),
      ...elements(
        'add',
        map,
        changed.map(([ip, chain]) => `${ip} : jump ${chain}`),
      ),
    )
  }
  // A rule holds the sets that it names.
  const chains = [...before.chains.keys()].filter((name) => !after.chains.has(name))
  for (const name of chains) gone.push(`flush chain ${NAME} ${name}`)
  for (const name of chains) gone.push(`delete chain ${NAME} ${name}`)
  for (const name of before.sets.keys()) if (!after.sets.has(name)) gone.push(`delete set ${NAME} ${name}`)
  return [...lines, ...gone]
}

/** The state without a policy. */
export const EMPTY: Compiled = {
  sets: new Map(),
  chains: new Map(),
  maps: { ingress4: new Map(), ingress6: new Map(), egress4: new Map(), egress6: new Map() },
}

// Without neighbour discovery a pod reaches nobody. Pods of one bridge do it across the bridge.
const ND = '    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept'
// Two hooks: what pods send to pods and to the world, and what they send to the node itself. What the node sends to its pods (probes) meets neither.
const HEAD = [
  `table ${NAME} {`,
  ...[4, 6].map((family) => `  set self${family} { type ipv${family}_addr . ipv${family}_addr; }`),
  ...MAPS.map((map) => `  map ${map} { type ipv${map.at(-1)}_addr : verdict; }`),
  '  chain forward {',
  '    type filter hook forward priority filter; policy accept;',
  '    ct state established,related accept',
  ND,
  '    ip saddr . ip daddr @self4 accept',
  '    ip6 saddr . ip6 daddr @self6 accept',
  '    ip saddr vmap @egress4',
  '    ip6 saddr vmap @egress6',
  '    ip daddr vmap @ingress4',
  '    ip6 daddr vmap @ingress6',
  '  }',
  '  chain input {',
  '    type filter hook input priority filter; policy accept;',
  '    ct state established,related accept',
  ND,
  '    ip saddr vmap @egress4',
  '    ip6 saddr vmap @egress6',
  '  }',
  '}',
]

function isFixed(name: string): boolean {
  return name === 'self4' || name === 'self6'
}

function without(one: NftSet | undefined, other: NftSet | undefined): string[] {
  return [...(one?.elements ?? [])].filter((element) => !other?.elements.has(element))
}

function elements(verb: 'add' | 'delete', name: string, all: readonly string[]): string[] {
  return Array.from({ length: Math.ceil(all.length / CHUNK) }, (_, i) => `${verb} element ${NAME} ${name} { ${all.slice(i * CHUNK, (i + 1) * CHUNK).join(', ')} }`)
}
