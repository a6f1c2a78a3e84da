// This folder keeps the fast path: an nft flowtable, by which the kernel sends packets of known connections from link to
// link, past all rules (docs/fast-path.md). Begin here. `ways.ts` finds the links and pods that take part. `program.ts`
// brings them into the kernel.
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Shape } from '../kernel/elements.ts'

/** The name of the table. */
export const TABLE = 'plumb_fast_path'
/** The table with its family, as lines of nft name it. */
export const NAME = `inet ${TABLE}`
/** The name of the flowtable in it. */
export const FLOWTABLE = 'flows'
/** Its only chain. */
export const CHAIN = 'forward'

/** The sets of the table. */
export const SHAPES: Readonly<Record<string, Shape>> = {
  // The links to other nodes and to the world.
  outer: { key: ['ifname'] },
  // The link by which packets of a pod come to the node, and an address of that pod.
  pods4: { key: ['ifname', 'ipv4_addr'] },
  pods6: { key: ['ifname', 'ipv6_addr'] },
  // Each bridge of pods, twice: frames that stay on it come in and go out by it.
  bridges: { key: ['ifname', 'ifname'] },
}

/** The set of the networks of `Ways.narrow`. It is there when there are some. */
export const NARROW = 'narrow6'

/** A transaction that removes the table, also where there is none. Connections go on by the rules. */
export const REMOVE = `table ${NAME}\ndelete table ${NAME}\n`

// After the chains of policy, of Services and of firewalld (filter + 10): what they drop is never offloaded.
const HOOK = 'type filter hook forward priority filter + 20; policy accept;'

/** The kernel takes at most 255 links of a flowtable in one message (`NFT_NETDEVICE_MAX`). */
const LINKS_AT_ONCE = 250

/**
 * The lines that make the table without elements, instead of any table that is there. A connection that was offloaded
 * meets the rules again at once. `networks` are those of all pods. For `narrow` see `Ways`.
 */
export function fixed(devices: readonly string[], networks: readonly Cidr[], narrow: readonly Cidr[]): string[] {
  const first = devices.slice(0, LINKS_AT_ONCE)
  return [
    `table ${NAME}`,
    `delete table ${NAME}`,
    `table ${NAME} {`,
    `  flowtable ${FLOWTABLE} { hook ingress priority filter; ${devicesOf(first)} counter; }`,
    ...Object.entries(SHAPES).map(([name, { key }]) => `  set ${name} { type ${key.join(' . ')}; }`),
    ...(narrow.length === 0
      ? []
      : [`  set ${NARROW} { type ipv6_addr; flags interval; elements = { ${narrow.join(', ')} }; }`]),
    `  chain ${CHAIN} {`,
    `    ${HOOK}`,
    ...rules(networks, narrow).map((rule) => `    ${rule}`),
    '  }',
    '}',
    ...additionsOf(devices.slice(LINKS_AT_ONCE)),
  ]
}

/** The lines that add devices to the flowtable (Linux 5.8). */
export function additionsOf(devices: readonly string[]): string[] {
  const lines: string[] = []
  for (let i = 0; i < devices.length; i += LINKS_AT_ONCE) {
    const some = devicesOf(devices.slice(i, i + LINKS_AT_ONCE))
    lines.push(`add flowtable ${NAME} ${FLOWTABLE} { hook ingress priority filter; ${some} counter; }`)
  }
  return lines
}

function devicesOf(devices: readonly string[]): string {
  return devices.length === 0 ? '' : `devices = { ${devices.map((one) => `"${one}"`).join(', ')} };`
}

/**
 * The rules of the chain. Both ends of a connection must be links of the flowtable: with one of them, its packets would
 * take the fast path in one direction alone. Addresses stand as they are before the source is translated, so that each
 * pod shows its own.
 */
export function rules(networks: readonly Cidr[], narrow: readonly Cidr[]): string[] {
  const families = [
    { word: 'ip', n: 4, own: networks.filter((one) => !isSix(one)) },
    { word: 'ip6', n: 6, own: networks.filter(isSix) },
  ].filter(({ own }) => own.length > 0)
  return [
    'ct state != established accept',
    'meta l4proto != { tcp, udp } accept',
    'iifname . oifname @bridges accept',
    ...families.flatMap(({ word, n, own }) => [
      `iifname != @outer iifname . ${word} saddr != @pods${n} accept`,
      `oifname != @outer oifname . ${word} daddr != @pods${n} accept`,
      // What a node forwards for others is not the agent's.
      `${word} saddr != { ${own.join(', ')} } ${word} daddr != { ${own.join(', ')} } accept`,
    ]),
    ...(narrow.length === 0 ? [] : ['saddr', 'daddr']).map((end) => `ip6 ${end} @${NARROW} accept`),
    `meta nfproto { ${families.map(({ n }) => `ipv${n}`).join(', ')} } flow add @${FLOWTABLE}`,
  ]
}
