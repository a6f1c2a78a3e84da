import type { Attachment } from '../cni/plugin.ts'
import type { IpConfig } from '../cni/result.ts'
import { isAnothers } from '../journal/journal.ts'
import { addressesNow, RT_SCOPE_LINK } from '../os/link-addresses.ts'
import { linkFacts } from '../os/links.ts'
import { inside } from '../os/netns.ts'
import { rulesNow } from '../os/route-tables.ts'
import type { Run } from '../os/run.ts'
import { apply } from '../state/apply.ts'
import type { Route } from '../state/kinds/route.ts'
import type { Rule } from '../state/kinds/rule.ts'
import type { Unrouted } from '../state/kinds/unrouted.ts'
import type { Resource } from '../state/resource.ts'
import { contains, isSix, networkOf } from '../text/cidr.ts'
import { type Cidr, type Ip, split } from '../text/ip.ts'
import type { IfName, Netns } from '../text/values.ts'

const MAIN = 254
/** The number of the first table that is used, as upstream. */
const FIRST = 100
// The priority of the kernel's rule for the main table.
const LAST = 32_766
const LINK_LOCAL = 'fe80::/64' as Cidr

/** The source-based routes of a link's addresses. */
interface Sourcing {
  readonly ns: Netns
  readonly dev: IfName
  /** Replaces the subnets of the addresses. */
  readonly gateways: readonly Ip[]
  /** The subnets also stay in the main table, with the source address of packets to them. */
  readonly hints: boolean
}

/**
 * Makes a rule and a table for each address, and moves the link's routes there from the main table. `before` has the
 * existing rules and routes, and the objects of an earlier ADD. Pure: the same input gives the same output.
 */
export function bySource(ips: readonly IpConfig[], how: Sourcing, before: readonly Resource[]): Resource[] {
  const { dev } = how
  const found = before.flatMap((one): Route[] => {
    if (one.kind === 'unrouted') return [one.route]
    if (one.kind !== 'route' || one.dev !== dev || one.table !== MAIN) return []
    return one.dst === LINK_LOCAL || isHint(one, before) ? [] : [one]
  })
  const main = distinct(found).sort(direct)
  const rules = before.filter((one): one is Rule => one.kind === 'rule')
  const taken = new Set<number>([
    ...rules.map(({ table }) => table),
    ...before.flatMap((one) => (one.kind === 'route' ? (one.table ?? MAIN) : [])),
  ])
  const tables = ips.map(({ address }) => tableFor(split(address).ip, rules, taken))
  const made = ips.flatMap((ip, i) => [...tableOf(ip, tables[i] as number, main, how)])
  const hints = how.hints ? ips.flatMap((ip) => hint(ip, main, how)) : []
  const leaving = how.hints ? main.filter((one) => one.scope !== RT_SCOPE_LINK) : main
  const unrouted = leaving.map((one): Unrouted => ({ kind: 'unrouted', ns: how.ns, dev, route: one }))
  return [...made, ...hints, ...rulesFor(ips, tables, how.ns, before), ...unrouted]
}

/**
 * Makes a rule for each address to its table. An existing rule is reused. New rules come before all others except the
 * rule for the table `local`, in the kernel's order. Pure.
 */
export function rulesFor(
  ips: readonly IpConfig[],
  tables: readonly number[],
  ns: Netns,
  before: readonly Resource[],
): Rule[] {
  const known = before.filter((one): one is Rule => one.kind === 'rule')
  let next = Math.min(LAST, ...known.map(({ priority }) => priority).filter((one) => one > 0))
  return ips.map(({ address }, i) => {
    const [from, table] = [split(address).ip, tables[i] as number]
    const priority = known.find((one) => one.from === from && one.table === table)?.priority ?? Math.max(1, --next)
    return { kind: 'rule', ns, from, table, priority }
  })
}

/** Removes the rules that the reference sbr made for the addresses of an existing link. */
export async function removeForeignRules(table: number | undefined, at: Attachment, run: Run): Promise<void> {
  const { netns: ns, ifname } = at
  if (ns === undefined) return
  const found = inside(ns, () => {
    const link = linkFacts(ifname)
    const mine = new Set(link ? addressesNow(link.index).map(({ cidr }) => split(cidr).ip) : [])
    if (mine.size === 0) return []
    const isTheirs = (number: number) => (table === undefined ? number >= FIRST : number === table)
    return rulesNow().filter((one) => mine.has(one.from) && isTheirs(one.table))
  })
  if (found.length === 0 || isAnothers(at)) return
  await apply({ put: [], drop: found.map((one): Rule => ({ kind: 'rule', ns, ...one })) }, run)
}

// The notes of an earlier ADD name the main table by leaving the table out.
function isHint({ dst, src, via }: Route, before: readonly Resource[]): boolean {
  if (via.length > 0) return false
  return before.some((one) => one.kind === 'route' && one.table === undefined && one.dst === dst && one.src === src)
}

// The table of an existing rule for the address. An earlier ADD or the reference plugin made it.
function tableFor(ip: Ip, rules: readonly Rule[], taken: Set<number>): number {
  const known = rules.find((one) => one.from === ip && one.table >= FIRST)?.table
  if (known !== undefined) return known
  let table = FIRST
  while (taken.has(table) || RESERVED.includes(table)) table++
  taken.add(table)
  return table
}

// The tables default, main and local.
const RESERVED = [253, 254, 255]

function tableOf(
  { address, gateway: own }: IpConfig,
  table: number,
  main: readonly Route[],
  { ns, dev, gateways }: Sourcing,
): Route[] {
  const six = isSix(address)
  const chosen = gateways.find((one) => isSix(one) === six)
  const gateway = chosen ?? own
  const isMine = ({ dst, src, via }: Route) => {
    if (isSix(dst) !== six) return false
    if (src === undefined && via.length === 0) return true
    return [src, ...via].some((one) => one !== undefined && (one === own || contains(address, one)))
  }
  const moved = main
    .filter((one) => isMine(one) && !(chosen !== undefined && isDefault(one.dst)))
    .map(({ proto: _, ...one }): Route => ({ ...one, table }))
  // This route also stays in the main table, because the link's own address is not in the moved routes.
  const all: Route[] = six
    ? [{ kind: 'route', ns, dev, dst: LINK_LOCAL, via: [], priority: IP6_RT_PRIO_ADDRCONF, table }, ...moved]
    : moved
  const metric = six ? IP6_RT_PRIO_USER : 0
  const hasDefault = all.some(({ dst, priority }) => isDefault(dst) && (priority ?? 0) === metric)
  if (gateway === undefined || hasDefault) return all
  return [...all, { kind: 'route', ns, dev, dst: (six ? '::/0' : '0.0.0.0/0') as Cidr, via: [gateway], table }]
}

// linux/ipv6_route.h: the default metric of an IPv6 route, and that of a route that the kernel derives from an address.
const [IP6_RT_PRIO_USER, IP6_RT_PRIO_ADDRCONF] = [1024, 256]

function hint({ address }: IpConfig, main: readonly Route[], { ns, dev }: Sourcing): Route[] {
  const { ip, length } = split(address)
  const dst = networkOf(address)
  const isAlone = length === (isSix(address) ? 128 : 32)
  if (isAlone || main.some((one) => one.dst === dst && one.src === ip && one.scope === RT_SCOPE_LINK)) return []
  return [
    {
      kind: 'route',
      ns,
      dev,
      dst,
      via: [],
      src: ip,
      ...(isSix(address) ? {} : { scope: RT_SCOPE_LINK }),
      position: 'prepend',
    },
  ]
}

function isDefault(dst: Cidr): boolean {
  return split(dst).length === 0
}

// Routes on the link come before routes through a gateway that they lead to.
function direct(a: Route, b: Route): number {
  return Math.sign(a.via.length) - Math.sign(b.via.length)
}

function distinct(routes: readonly Route[]): Route[] {
  const found = new Map<string, Route>()
  for (const { table: _, ...one } of routes) found.set(JSON.stringify([one.dst, one.via, one.priority]), one)
  return [...found.values()]
}
