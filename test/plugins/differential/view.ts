import type { Row } from '../../support/harness.ts'
import type { Names, Part, Sight } from './names.ts'
import type { Raw } from './raw.ts'

/** Facts by path: `node/dev br0/mtu` to `1500`. */
export type Facts = ReadonlyMap<string, string>

// What counts, numbers links, or is under way.
const VOLATILE =
  /^(ifindex|ifname|link_index|link_netnsid|link|addr_info|tentative|optimistic|fdb_n_learned|topology_change\w*|.*_timer|root_port|designated_port|no|id)$/
const COUNTERS =
  /^(netfilter\/nf_conntrack_count|netfilter\/nf_conntrack_max|nf_conntrack_max|netfilter\/nf_conntrack_buckets|ipv[46]\/(tcp_mem|udp_mem|route\/.*))$/

/**
 * What is to be seen of a node and its pods, in the words of both sides. `before` is what was there before the first
 * call; `marks` are words by which rules name a pod.
 */
export function factsOf(
  sight: Sight,
  before: Sight,
  names: Names,
  marks: Readonly<Record<string, readonly string[]>>,
): Facts {
  names.learn(sight)
  const facts = new Map<string, string>()
  for (const [pod, words] of Object.entries(marks))
    facts.set(`node/rules about ${pod}`, words.some((word) => isNamed(word, sight.node.ruleset)) ? 'some' : 'none')
  for (const where of ['node', 'a', 'b'] as const) {
    const [now, then] = [sight[where], before[where]]
    if (now && then)
      for (const [path, value] of about(now, then, where === 'node' ? '' : `${where}:`, names))
        facts.set(names.plain(`${where}/${path}`), names.plain(value))
  }
  return facts
}

// An address may be the beginning of another.
function isNamed(word: string, ruleset: string): boolean {
  const after = word.includes(':') ? '[0-9a-f:]' : '\\d|\\.\\d'
  return new RegExp(`(?<![0-9a-f:.])${word.replaceAll('.', '\\.')}(?!${after})`).test(ruleset)
}

/** Neighbours whose link address was learned, except link-local ones: which address answers for which. */
export function neighboursOf(sight: Part<'links' | 'neighbours'>, names: Names): Facts {
  names.learn(sight)
  const facts = new Map<string, string>()
  for (const where of ['node', 'a', 'b'] as const)
    for (const row of sight[where]?.neighbours ?? [])
      if (row['lladdr'] && !row['dst'].startsWith('fe80:'))
        facts.set(names.plain(`${where}/${row['dev']} ${row['dst']}`), names.mac(row['lladdr']))
  return facts
}

/** An object's leaves by path; lists of plain values are one leaf. */
export function flat(value: unknown, path: string): [string, string][] {
  if (Array.isArray(value) && value.every((one) => typeof one !== 'object')) return [[path, value.join(' ')]]
  if (typeof value !== 'object' || value === null) return [[path, String(value)]]
  return Object.entries(value).flatMap(([key, one]) => flat(one, `${path}/${key}`))
}

// All that hangs on a link stands below `dev NAME`.
function about(now: Raw, then: Raw, prefix: string, names: Names): [string, string][] {
  return [
    ...now.links.flatMap((link) => [
      ...linkOf(link, `${prefix}${names.plain(link['ifname'])}`, names),
      ...addressesOf(link),
    ]),
    ...numbered(now.routes.flatMap(routeOf)),
    ...numbered(now.rules.map(({ family, priority, ...rest }) => [`rule ${family} ${priority}`, JSON.stringify(rest)])),
    ...now.neighbours
      .filter(({ state }) => state.includes('PERMANENT'))
      .map(({ dev, dst, lladdr, state }): [string, string] => [`dev ${dev}/neighbour ${dst}`, `${lladdr} ${state}`]),
    ...now.fdb.flatMap((row) => entryOf(row, prefix, names)),
    ...now.vlans.map(({ ifname, vlans }): [string, string] => [`dev ${ifname}/vlans`, JSON.stringify(vlans)]),
    ['nft tables', [...now.ruleset.matchAll(/^table (\w+ \w+)/gm)].map(([, name]) => name).join(', ')],
    ...changed(now.sysctls, then.sysctls),
    ...[...now.files].map(([path, value]): [string, string] => [`file ${path}`, value]),
  ]
}

function linkOf(link: Row, name: string, names: Names): [string, string][] {
  const kept = (fields: Row) => Object.fromEntries(Object.entries(fields).filter(([key]) => !VOLATILE.test(key)))
  const { linkinfo = {}, flags, address, ...rest } = link
  const { info_kind = '', info_slave_kind = '', info_data = {}, info_slave_data = {} } = linkinfo
  return flat(
    {
      there: 'yes',
      ...kept(rest),
      address: names.mac(address, name),
      flags: [...flags].sort(),
      kind: info_kind,
      port: info_slave_kind,
      data: kept(info_data),
      slave: kept(info_slave_data),
    },
    `dev ${link['ifname']}`,
  )
}

function addressesOf({ ifname, addr_info }: Row): [string, string][] {
  const all = addr_info as Row[]
  const order = ['inet', 'inet6'].flatMap((family): [string, string][] => {
    const found = all.filter((one) => one['family'] === family && one['scope'] !== 'link').map(({ local }) => local)
    return found.length > 0 ? [[`dev ${ifname}/order of ${family}`, found.join(' ')]] : []
  })
  return [
    ...order,
    ...all.flatMap(({ local, prefixlen, family: _, ...rest }) =>
      flat(
        Object.fromEntries(Object.entries(rest).filter(([key]) => !VOLATILE.test(key))),
        `dev ${ifname}/address ${local}/${prefixlen}`.replaceAll(/(?<=address .*)\//g, '|'),
      ),
    ),
  ]
}

// The routes to a link's own link-local addresses come with those. Whether a link has a carrier is a matter of the
// link.
function routeOf({ family, table, type, dst, dev, metric, flags, ...rest }: Row): [string, string][] {
  if (/^fe80::(?!\/)/.test(dst)) return []
  const known = (flags as string[]).filter((one) => one !== 'linkdown')
  const path = `route ${family} ${table} ${type} ${dst}${metric === undefined ? '' : ` metric ${metric}`}`.replaceAll(
    '/',
    '|',
  )
  return [[dev === undefined ? path : `dev ${dev}/${path}`, JSON.stringify({ ...rest, flags: known })]]
}

// Entries that were learned come and go; groups of addresses go with the addresses.
function entryOf({ mac, ifname, ...rest }: Row, prefix: string, names: Names): [string, string][] {
  return rest['state'] === '' || /^33:33:ff/.test(mac)
    ? []
    : [
        [
          `dev ${ifname}/fdb ${names.mac(mac, `${prefix}${names.plain(ifname)}`)}${rest['vlan'] ? ` vlan ${rest['vlan']}` : ''}`,
          JSON.stringify(rest),
        ],
      ]
}

function numbered(rows: readonly (readonly [string, string])[]): [string, string][] {
  const seen = new Map<string, number>()
  return rows.map(([key, value]) => {
    const n = (seen.get(key) ?? 0) + 1
    seen.set(key, n)
    return [n === 1 ? key : `${key} #${n}`, value]
  })
}

// Of settings per link, those of new ones are compared with what the namespace's default was; where a namespace has no
// default, with lo's.
const PER_LINK = /^(ipv[46]\/(?:conf|neigh))\/(?!all\/|default\/)([^/]+)\/(.*)$/

/** What is not as it was, and of new links what is not as usual. */
function changed(now: ReadonlyMap<string, string>, then: ReadonlyMap<string, string>): [string, string][] {
  const usual = (path: string) =>
    then.get(path) ?? then.get(path.replace(PER_LINK, '$1/default/$3')) ?? then.get(path.replace(PER_LINK, '$1/lo/$3'))
  const title = (path: string) => {
    const [, kind, dev, rest] = PER_LINK.exec(path) ?? []
    return (dev === undefined ? `sysctl ${path}` : `dev ${dev}/sysctl ${kind}/${rest}`).replaceAll(
      /(?<=sysctl .*)\//g,
      '.',
    )
  }
  const gone = [...then.keys()].filter((path) => !now.has(path)).map((path): [string, string] => [title(path), 'gone'])
  return [
    ...[...now]
      .filter(([path, value]) => !COUNTERS.test(path) && usual(path) !== value)
      .map(([path, value]): [string, string] => [title(path), value]),
    ...gone,
  ]
}
