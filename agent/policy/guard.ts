import { isInForce, isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { bits128 } from '../../lib/text/ip.ts'
import { Elements, type Shape } from '../kernel/elements.ts'
import type { PodPlaces } from './places.ts'

// What policies cannot decide, because they decide by the addresses of pods (docs/decisions/0033). A pod sends from its
// own addresses only: a forged one would be another pod. An isolated pod gets packets for its own addresses only:
// broadcast, multicast and link-local addresses belong to no pod. The frames of a bridge's port meet a table of the
// family `bridge`, and the packets of any other link one of the family `inet`, with the same rules.

/** The name of both tables. */
export const GUARD = 'plumb_guard'
/** A transaction that removes both tables, also where there are none. */
export const REMOVE = ['inet', 'bridge']
  .map((family) => `table ${family} ${GUARD}\ndelete table ${family} ${GUARD}\n`)
  .join('')

const FAMILIES = ['inet', 'bridge'] as const
type Family = (typeof FAMILIES)[number]
const LINKS: Shape = { key: ['ifname'] }
const SHAPES: Readonly<Record<string, Shape>> = {
  links: LINKS,
  isolated: LINKS,
  confined: LINKS,
  strangers: LINKS,
  owners4: { key: ['ifname', 'ipv4_addr'] },
  owners6: { key: ['ifname', 'ipv6_addr'] },
  // The same addresses as `owners6`. nft compares raw bytes of a packet with a set of raw bytes alone.
  targets6: { key: ['ifname', 'bits128'] },
}

/** Keeps pods from sending with addresses that are not theirs, and closes to isolated pods what no policy can allow. */
export class Guard {
  readonly #tables: Readonly<Record<Family, { readonly elements: Elements; isLoaded: boolean }>> = {
    inet: { elements: new Elements(GUARD, SHAPES), isLoaded: false },
    bridge: { elements: new Elements(GUARD, SHAPES, { family: 'bridge' }), isLoaded: false },
  }

  /** The node has a bridge, or had one. When another program makes it again, pods may be its ports at once. */
  #hadBridge: boolean | undefined

  /** Notes that another program may have changed the tables. */
  invalidate(): void {
    for (const { elements } of Object.values(this.#tables)) elements.invalidate()
  }

  /**
   * The works that bring the pods' places into the kernel, one per table. Each gives what it had to repair, and throws
   * ExecError.
   */
  works({ pods, strangers, hasBridge }: PodPlaces): ((run: Run) => Promise<readonly string[]>)[] {
    // An agent that starts while the bridge is gone finds the table of the agent before.
    this.#hadBridge = hasBridge || (this.#hadBridge ?? isThere('bridge', GUARD))
    const isEitherWay = this.#hadBridge
    const wanted = { inet: new Map<string, Set<string>>(), bridge: new Map<string, Set<string>>() }
    const put = (family: Family, set: string, key: string) =>
      wanted[family].set(set, (wanted[family].get(set) ?? new Set()).add(key))
    for (const { link, isPort, addresses, isIsolated, isConfined } of pods) {
      for (const family of FAMILIES) {
        if (family === 'bridge' ? !isPort && !isEitherWay : isPort) continue
        put(family, 'links', `"${link}"`)
        if (isIsolated) put(family, 'isolated', `"${link}"`)
        if (isConfined && family === 'bridge') put(family, 'confined', `"${link}"`)
        for (const ip of addresses) put(family, isSix(ip) ? 'owners6' : 'owners4', `"${link}" . ${ip}`)
        for (const ip of addresses.filter(isSix)) put(family, 'targets6', `"${link}" . ${bits128(ip)}`)
      }
    }
    for (const link of strangers) put('bridge', 'strangers', `"${link}"`)
    return FAMILIES.map((family) => (run) => this.#keep(family, wanted[family], run))
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
    const isGone = table.isLoaded && elements.mayDiffer && !isInForce(family, GUARD)
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

// Without neighbour discovery a pod reaches nobody. A bridge that snoops on multicast forwards it only to ports that
// report their groups.
const DISCOVERY_TYPES = [
  ...['nd-router-solicit', 'nd-router-advert', 'nd-neighbor-solicit', 'nd-neighbor-advert', 'nd-redirect'],
  ...['mld-listener-query', 'mld-listener-report', 'mld-listener-done', 'mld2-listener-report'],
]
const DISCOVERY = `icmpv6 type { ${DISCOVERY_TYPES.join(', ')} }`
// Policies decide packets of IP without a tag. Any other frame, such as one with a tag of any VLAN or one of PPPoE, would
// carry packets past them. `ether type` sees the tag also where a network card keeps it apart from the frame, which
// `ip saddr` does not.
const OTHER_FRAMES = 'ether type != { ip, ip6, arp } counter drop'
// A pod is no router. One such message would lead the IPv6 packets of all pods of the bridge to it.
const ROUTERS = 'icmpv6 type { nd-router-advert, nd-redirect } counter drop'
// The address that a neighbour advertisement is about, as `arp saddr ip` in ARP. Addresses of the link are anybody's.
const TARGET = '@th,64,128'
const FORGED_TARGET = `icmpv6 type nd-neighbor-advert @th,64,10 != 0x3fa iifname . ${TARGET} != @targets6 counter drop`
const UNICAST = 'ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00'
const DHCP_ANSWERS = 'ip protocol udp udp sport 67 udp dport 68 accept'
const UNADDRESSED = { 4: '{ 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 }', 6: '{ fe80::/10, ff00::/8 }' } as const

// Address detection asks from no address at all (RFC 5227, RFC 4862), as DHCP does. Neighbour discovery and DHCP of
// IPv6 use addresses of the link.
function fixed(family: Family): string[] {
  const isBridge = family === 'bridge'
  const toPods = (hook: string) => [
    `type filter hook ${hook} priority -300; policy accept;`,
    'oifname @isolated goto isolated_in',
    ...(isBridge ? ['oifname @strangers goto strangers_in', 'oifname @links goto pods_in'] : []),
  ]
  const chains: Readonly<Record<string, readonly string[]>> = {
    // What a pod may send from an address of the link. A port whose pod is not known counts as a pod.
    local_out: [`${DISCOVERY} accept`, 'udp dport 547 accept', 'counter drop'],
    prerouting: [
      'type filter hook prerouting priority -300; policy accept;',
      ...(isBridge ? ['isolated', 'confined', 'strangers'].map((set) => `iifname @${set} ${OTHER_FRAMES}`) : []),
      ...(isBridge ? ['iifname @strangers ip6 saddr fe80::/10 goto local_out'] : []),
      'iifname != @links accept',
      ROUTERS,
      FORGED_TARGET,
      'iifname . ip saddr @owners4 accept',
      'iifname . ip6 saddr @owners6 accept',
      ...(isBridge ? ['ether type arp iifname . arp saddr ip @owners4 accept', 'arp saddr ip 0.0.0.0 accept'] : []),
      'ip saddr 0.0.0.0 udp dport 67 accept',
      'ip6 saddr fe80::/10 goto local_out',
      `ip6 saddr :: ${DISCOVERY} accept`,
      'counter drop',
    ],
    // What every pod gets, whatever selects it.
    excepted: [
      ...(isBridge ? ['ether type arp accept'] : []),
      `${DISCOVERY} accept`,
      DHCP_ANSWERS,
      'ip6 nexthdr udp udp sport 547 udp dport 546 accept',
      'counter drop',
    ],
    // What policies decide is accepted here: packets for the pod's own addresses.
    isolated_in: [
      ...(isBridge ? [OTHER_FRAMES] : []),
      'oifname . ip daddr @owners4 accept',
      'oifname . ip6 daddr @owners6 accept',
      'goto excepted',
    ],
    // A pod that sends from the hardware address of another one gets its frames: the bridge believes it.
    ...(isBridge && {
      pods_in: [
        'oifname . ip daddr @owners4 accept',
        'oifname . ip6 daddr @owners6 accept',
        DHCP_ANSWERS,
        `${UNICAST} ip daddr != ${UNADDRESSED[4]} counter drop`,
        `ip6 daddr != ${UNADDRESSED[6]} counter drop`,
      ],
      strangers_in: [
        OTHER_FRAMES,
        `${UNICAST} ip daddr != ${UNADDRESSED[4]} accept`,
        `${UNICAST} ip6 daddr != ${UNADDRESSED[6]} ip6 saddr != fe80::/10 accept`,
        'goto excepted',
      ],
    }),
    forward: toPods('forward'),
    ...(isBridge && { output: toPods('output') }),
  }
  return [
    `table ${family} ${GUARD}`,
    `delete table ${family} ${GUARD}`,
    `table ${family} ${GUARD} {`,
    ...Object.entries(SHAPES).map(([name, { key }]) =>
      key.includes('bits128')
        ? `  set ${name} { typeof iifname . ${TARGET}; }`
        : `  set ${name} { type ${key.join(' . ')}; }`,
    ),
    ...Object.entries(chains).flatMap(([name, lines]) => [
      `  chain ${name} {`,
      ...lines.map((line) => `    ${line}`),
      '  }',
    ]),
    '}',
  ]
}
