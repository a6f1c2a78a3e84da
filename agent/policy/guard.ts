import { isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { Elements, type Shape } from '../kernel/elements.ts'
import type { Endpoint } from './endpoints.ts'

// A pod sends from its own addresses only. Policies decide by addresses, and a forged one would be another pod. The frames of a bridge's
// port meet a table of the family `bridge`, and the packets of any other link one of the family `inet`, with the same rules.

/** The name of both tables. */
export const GUARD = 'plumb_guard'
/** A transaction that removes both tables, also where there are none. */
export const REMOVE = `table inet ${GUARD}\ndelete table inet ${GUARD}\ntable bridge ${GUARD}\ndelete table bridge ${GUARD}\n`

type Family = 'inet' | 'bridge'
const SHAPES: Readonly<Record<string, Shape>> = { links: { key: ['ifname'] }, owners4: { key: ['ifname', 'ipv4_addr'] }, owners6: { key: ['ifname', 'ipv6_addr'] } }

/** Keeps pods from sending with addresses that are not theirs. Knows the pods that ADD has told of, by their links on the node. */
export class Guard {
  readonly #tables: Readonly<Record<Family, { readonly elements: Elements; isLoaded: boolean }>> = {
    inet: { elements: new Elements(GUARD, SHAPES), isLoaded: false },
    bridge: { elements: new Elements(GUARD, SHAPES, { family: 'bridge' }), isLoaded: false },
  }

  /** Notes that another program may have changed the tables. */
  doubt(): void {
    for (const { elements } of Object.values(this.#tables)) elements.doubt()
  }

  /**
   * The works that bring the attachments into the kernel, one per table. `isPort` says whether a link is a bridge's port. Each gives what it had to repair, and throws
   * ExecError.
   */
  works(endpoints: readonly Endpoint[], isPort: (link: string) => boolean): ((run: Run) => Promise<readonly string[]>)[] {
    const wanted = { inet: new Map<string, Set<string>>(), bridge: new Map<string, Set<string>>() }
    for (const { link, addresses } of endpoints) {
      if (link === undefined) continue
      const sets = wanted[isPort(link) ? 'bridge' : 'inet']
      const put = (set: string, key: string) => sets.set(set, (sets.get(set) ?? new Set()).add(key))
      put('links', `"${link}"`)
      for (const ip of addresses) put(isSix(ip) ? 'owners6' : 'owners4', `"${link}" . ${ip}`)
    }
    return (['inet', 'bridge'] as const).map((family) => (run) => this.#keep(family, wanted[family], run))
  }

  async #keep(family: Family, wanted: ReadonlyMap<string, ReadonlySet<string>>, run: Run): Promise<readonly string[]> {
    const table = this.#tables[family]
    const { elements } = table
    for (const set of Object.keys(SHAPES)) {
      const keys = wanted.get(set) ?? new Set()
      for (const key of [...elements.wanted(set).keys()]) if (!keys.has(key)) elements.remove(set, key)
      for (const key of keys) elements.put(set, key)
    }
    // Without pods there is nothing to guard.
    if (!table.isLoaded && wanted.size === 0) return []
    const isGone = table.isLoaded && elements.isInDoubt && !isThere(family, GUARD)
    if (table.isLoaded && !isGone) {
      table.isLoaded = false
      const { repaired } = await elements.step(run)
      table.isLoaded = true
      return repaired
    }
    elements.forget()
    await elements.step(run, { before: fixed(family) })
    table.isLoaded = true
    return isGone ? [`nft table ${family} ${GUARD}`] : []
  }
}

// Address detection asks from no address at all (RFC 5227, RFC 4862), as DHCP does. Neighbour discovery and multicast groups of IPv6 use
// addresses of the link.
function fixed(family: Family): string[] {
  const arp = ['ether type arp iifname . arp saddr ip @owners4 accept', 'arp saddr ip 0.0.0.0 accept']
  return [
    `table ${family} ${GUARD}`,
    `delete table ${family} ${GUARD}`,
    `table ${family} ${GUARD} {`,
    ...Object.entries(SHAPES).map(([name, { key }]) => `  set ${name} { type ${key.join(' . ')}; }`),
    '  chain prerouting {',
    '    type filter hook prerouting priority -300; policy accept;',
    '    iifname != @links accept',
    '    iifname . ip saddr @owners4 accept',
    '    iifname . ip6 saddr @owners6 accept',
    ...(family === 'bridge' ? arp.map((line) => `    ${line}`) : []),
    '    ip saddr 0.0.0.0 udp dport 67 accept',
    '    ip6 saddr { ::, fe80::/10 } meta l4proto icmpv6 accept',
    '    ip6 saddr fe80::/10 udp dport 547 accept',
    '    counter drop',
    '  }',
    '}',
  ]
}
