import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Entrance } from '../backend/backend.ts'
import type { Shape } from '../kernel/elements.ts'

/** The name of the table that refuses tunnelled packets of strangers. Instances append their name as with `TABLE`. */
export const TUNNELS = 'plumb_tunnels'
/** The sets that follow the leases. */
export const SHAPES = { nodes4: { key: ['ipv4_addr'] }, nodes6: { key: ['ipv6_addr'] } } as const satisfies Readonly<
  Record<string, Shape>
>
/** The counter of refused packets. */
export const REFUSED = 'refused'
/** The sets of addresses whose packets were refused in the last ten minutes, with the type of their elements. */
export const STRANGERS = { strangers4: 'ipv4_addr', strangers6: 'ipv6_addr' } as const

/** From where tunnelled packets are taken besides the leases' addresses: from these networks, or from anywhere. */
export type TunnelSources = readonly Cidr[] | 'any'

/** The set of `SHAPES` that has an address. */
export function setOf(ip: Ip): keyof typeof SHAPES {
  return isSix(ip) ? 'nodes6' : 'nodes4'
}

/**
 * The lines that make the table, or bring the rules of an earlier table up to date. Elements and counter stay. A table
 * of another shape makes nft fail. The rule at `input` is for packets to this node. Pods of this node reach other nodes
 * with the node's own address (masquerading), so the rule at `forward` refuses what they send into a tunnel. Pure.
 */
export function tunnelRules(name: string, entrances: readonly Entrance[], sources: readonly Cidr[]): string[] {
  const rules = entrances.map(({ family, match, at }) => {
    const [ip, n] = family === 'v6' ? ['ip6', 6] : ['ip', 4]
    const others = sources.filter((one) => isSix(one) === (family === 'v6')).map((one) => ` ${ip} saddr != ${one}`)
    const strange = `${ip} saddr != @nodes${n}${others.join('')} goto refused${n}`
    return {
      input: `${match}${at === undefined ? '' : ` ${ip} daddr ${at}`} ${strange}`,
      forward: `${match} ${ip} daddr @nodes${n} ${strange}`,
    }
  })
  const refused = (n: 4 | 6, ip: string) => [`add @strangers${n} { ${ip} saddr }`, `counter name ${REFUSED} drop`]
  const chains: Readonly<Record<string, readonly string[]>> = {
    refused4: refused(4, 'ip'),
    refused6: refused(6, 'ip6'),
    input: rules.map(({ input }) => input),
    forward: rules.map(({ forward }) => forward),
  }
  const table = `inet ${name}`
  return [
    `add table ${table}`,
    ...Object.entries(SHAPES).map(([set, { key }]) => `add set ${table} ${set} { type ${key[0]}; }`),
    ...Object.entries(STRANGERS).map(
      // A full set takes no more addresses, and the packets are dropped all the same.
      ([set, type]) => `add set ${table} ${set} { type ${type}; size 64; flags dynamic,timeout; timeout 10m; }`,
    ),
    `add counter ${table} ${REFUSED}`,
    ...Object.keys(chains).map((chain) => `add chain ${table} ${chain}${HOOKS[chain] ?? ''}`),
    ...Object.keys(chains).map((chain) => `flush chain ${table} ${chain}`),
    ...Object.entries(chains).flatMap(([chain, lines]) => lines.map((line) => `add rule ${table} ${chain} ${line}`)),
  ]
}

const HOOKS: Readonly<Record<string, string>> = {
  input: ' { type filter hook input priority raw; policy accept; }',
  forward: ' { type filter hook forward priority raw; policy accept; }',
}
