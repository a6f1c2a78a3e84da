import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { isSix, meets } from '../../lib/text/cidr.ts'
import { CniError, CODE, shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp, split } from '../../lib/text/ip.ts'
import { type IfName, parse } from '../../lib/text/values.ts'
import { PROTO } from '../kernel/marks.ts'
import { within } from '../kernel/ownership.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import type { Pool } from '../lease/network-configuration.ts'
import type { Card, ChecksumOffload } from './checksum-offload.ts'

/** The link towards the other nodes, with its addresses and routes. */
export interface Uplink {
  readonly name: IfName
  readonly index: number
  readonly mtu: number
  /** The local addresses of the tunnels, on this link. */
  readonly tunnel: Both<Ip>
  /** The addresses that peers see. They equal `tunnel`, or they are the addresses that a NAT gives. */
  readonly advertise: Both<Ip>
  /**
   * The node's routes in the main table without the agent's routes, most specific first. `gateway` says that the next
   * hop is a router.
   */
  readonly routes: readonly { readonly dst: Cidr; readonly dev: IfName; readonly gateway: boolean }[]
  /** Absent while nobody has looked at the card. */
  readonly card?: Card
}

/** The chosen uplink. `why` gives the reason for log and status in one sentence. */
export interface Choice {
  readonly uplink: Uplink
  readonly why: string
  /** Routes of other programs within the networks of pods, with the number of their protocol (rtnetlink(7)). */
  readonly foreignRoutes?: readonly { readonly dst: Cidr; readonly protocol: string }[]
  /** Absent with a backend that leaves this to the kernel. */
  readonly checksumOffload?: ChecksumOffload
}

/** The settings for the choice. Without any of them, the link of the default route is chosen. */
export interface UplinkPreferences {
  /** `--iface`: addresses or names. The first one that exists is chosen. */
  readonly ifaces: readonly string[]
  /** `--iface-regex`: patterns for an address, or else for a name. */
  readonly patterns: readonly string[]
  /** `--iface-can-reach`: the link that leads to this address is chosen. */
  readonly canReach?: Ip
  /** The local addresses of the tunnels. */
  readonly tunnel: Both<Ip>
  /** The addresses for peers (`--public-ip`, `--public-ipv6`). */
  readonly advertise: Both<Ip>
}

/** The links, addresses and routes of the node at one moment. */
export interface Sight {
  readonly links: readonly LinkRow[]
  readonly routes: readonly RouteRow[]
  /** The route to `canReach`. */
  readonly reach?: Omit<RouteRow, 'family'>
}
interface LinkRow {
  readonly ifindex: number
  readonly ifname: string
  readonly mtu: number
  readonly flags: readonly string[]
  readonly addr_info: readonly AddrRow[]
  /** The bond or the bridge that the link belongs to. */
  readonly master?: string
  /** The link below. With `link_netnsid` it is in another namespace. */
  readonly link?: string
  readonly link_netnsid?: number
  readonly linkinfo?: { readonly info_kind?: string }
}
interface AddrRow {
  readonly family: 'inet' | 'inet6'
  readonly local: string
  readonly scope: string
  readonly dynamic?: boolean
  readonly temporary?: boolean
  readonly deprecated?: boolean
  readonly tentative?: boolean
  readonly dadfailed?: boolean
}
interface RouteRow {
  readonly family: Family
  readonly dst: string
  readonly dev?: string
  readonly gateway?: string
  readonly via?: object
  readonly prefsrc?: string
  readonly protocol?: string
  readonly metric?: number
  readonly nexthops?: readonly { readonly dev?: string; readonly gateway?: string }[]
}

/** Reads the links, addresses and routes with three commands, or four with `canReach`. Throws ExecError. */
export async function see({ canReach }: Pick<UplinkPreferences, 'canReach'>, run: Run): Promise<Sight> {
  const rows = async (...argv: string[]) => JSON.parse((await listed(argv, run)) || '[]')
  const [links, four, six, reach] = await Promise.all([
    rows('ip', '-d', '-j', 'addr', 'show'),
    rows('ip', '-4', '-N', '-j', 'route', 'show', 'table', '254'),
    rows('ip', '-6', '-N', '-j', 'route', 'show', 'table', '254'),
    canReach === undefined ? undefined : rows('ip', '-N', '-j', 'route', 'get', canReach).catch(() => []),
  ])
  const of = (family: Family, all: readonly Omit<RouteRow, 'family'>[]): RouteRow[] =>
    all.map((row) => ({ ...row, family }))
  return { links, routes: [...of(4, four), ...of(6, six)], ...(reach?.[0] ? { reach: reach[0] } : {}) }
}

/**
 * Chooses as flannel does (pkg/ipmatch), except for `--public-ip`, because only a NAT may have that address. `on` has
 * the families of the network. Without settings, the link of `before` stays chosen while it is up and has its
 * addresses. It loses only to another link that alone has a default route. In this way a VPN does not move the pods'
 * network. A point-to-point link is never chosen without a setting. Pure. Throws ValueError with the wanted and the
 * existing links.
 */
export function chooseUplink(
  sight: Sight,
  wish: UplinkPreferences,
  on: Both<unknown>,
  before?: Pick<Uplink, 'name' | 'index' | 'tunnel'>,
): Choice {
  const families = [...(on.v4 ? [4 as const] : []), ...(on.v6 ? [6 as const] : [])]
  const { row, why, asked } = chooseLink(sight, wish, families, before)
  const name = parse.ifname(row.ifname)
  if (row.mtu === 0) throw new ValueError(`Cannot use ${name} as uplink: its MTU is 0`)
  const tunnel: { v4?: Ip; v6?: Ip } = {}
  for (const family of families) {
    const own = wish.tunnel[key(family)] ?? addressOf(row, family, asked, wish.advertise[key(family)])
    if (own === undefined)
      throw new ValueError(
        `Cannot use ${name} as uplink: it has no usable IPv${family} address; want one, or another link (--iface)`,
      )
    tunnel[key(family)] = own
  }
  const advertise = { ...tunnel, ...pick(wish.advertise, families) }
  const announced = families.flatMap((family) =>
    advertise[key(family)] === tunnel[key(family)] ? [] : [`told as ${advertise[key(family)]}`],
  )
  return {
    uplink: { name, index: row.ifindex, mtu: row.mtu, tunnel, advertise, routes: routesOf(sight.routes) },
    why: [why, ...announced].join(', '),
  }
}

/** The types of links that send by the link below them. Other links show a link, too: a veth shows its other end. */
const UPPER: readonly string[] = ['vlan', 'macvlan', 'ipvlan']

/**
 * The card of a link. Below a bond or a bridge are several: one without the feature counts, then one that does not say.
 * `hasFeature` asks a link. Pure.
 */
export function cardOf(
  links: Sight['links'],
  name: string,
  hasFeature: (name: string) => Card['hasTunnelChecksums'],
): Card {
  const all = cardsBelow(links, name, []).map((one): Card => ({ name: one, hasTunnelChecksums: hasFeature(one) }))
  const worst = all.find((one) => one.hasTunnelChecksums === false)
  return worst ?? all.find((one) => one.hasTunnelChecksums === undefined) ?? (all[0] as Card)
}

// `above` are the links on the way to this one.
function cardsBelow(links: Sight['links'], name: string, above: readonly string[]): string[] {
  const ports = links.filter(({ master }) => master === name).map(({ ifname }) => ifname)
  const own = links.find(({ ifname }) => ifname === name)
  const isUpper = UPPER.includes(own?.linkinfo?.info_kind ?? '') && own?.link_netnsid === undefined
  const below = ports.length > 0 ? ports : isUpper && own?.link !== undefined ? [own.link] : []
  const left = below.filter((one) => one !== name && !above.includes(one))
  return left.length === 0 ? [name] : left.flatMap((one) => cardsBelow(links, one, [...above, name]))
}

/** The networks on the uplink itself. Their addresses are direct neighbours. */
export function directRoutes({ name, routes }: Pick<Uplink, 'name' | 'routes'>): readonly Cidr[] {
  return routes.flatMap(({ dst, dev, gateway }) => (dev === name && !gateway ? [dst] : []))
}

/** How routes to pods are told from routes of other programs. */
export interface PodRoutes {
  /** The backend's own devices. */
  readonly links: readonly string[]
  /** The subnets of this node in its earlier run, the agent's or flannel's. */
  readonly subnets: Both<Cidr>
  /** Commands of the network's configuration make the routes to peers. */
  readonly byCommands: boolean
}

/**
 * Finds a route of the node that overlaps a network and does not lead to pods. Undefined when there is none. Routes of
 * the agent, of bridges and of the backend's devices lead to pods. So do direct routes within this node's earlier
 * subnet, and what flannel or commands made for peers in the same network.
 */
export function overlap({ links, routes }: Sight, { network, length }: Pool, pods: PodRoutes): string | undefined {
  const isBridge = ({ linkinfo }: LinkRow) => linkinfo?.info_kind === 'bridge'
  const bridges = new Set(links.filter(isBridge).map(({ ifname }) => ifname))
  const earlier = both(pods.subnets)
  const [isInNetwork, isInSubnet] = [within([network]), within(earlier)]
  const hasServed = earlier.some((one) => isSix(one) === isSix(network) && isInNetwork(one))
  const isOfPeer = (dst: Cidr, { dev = '', gateway, via }: RouteRow) => {
    if (!hasServed) return false
    const isSubnet = isInNetwork(dst) && split(dst).length === length
    return FLANNEL.test(dev) || (isSubnet && (pods.byCommands || gateway !== undefined || via !== undefined))
  }
  const found = routes.find((route) => {
    const { dst, dev = '', protocol, gateway } = route
    if (protocol === String(PROTO) || dst === 'default' || bridges.has(dev) || pods.links.includes(dev)) return false
    const cidr = cidrOf(dst)
    return meets(cidr, network) && !(gateway === undefined && isInSubnet(cidr)) && !isOfPeer(cidr, route)
  })
  return found && `${found.dst} on ${found.dev ?? 'several links'}`
}

/** The devices of flannel's backends. */
const FLANNEL = /^flannel(\d+$|\.|-wg)/

/**
 * The routes within the networks of pods that neither the kernel nor the agent nor BIRD has made. They may lead to pods
 * of this node. Pure.
 */
export function foreignRoutes(
  { routes }: Pick<Sight, 'routes'>,
  networks: readonly Cidr[],
): NonNullable<Choice['foreignRoutes']> {
  const isInside = within(networks)
  return routes.flatMap(({ dst, protocol = BOOT }) => {
    if (dst === 'default' || KNOWN.includes(protocol)) return []
    const cidr = cidrOf(dst)
    return isInside(cidr) ? [{ dst: cidr, protocol }] : []
  })
}

/** The protocols of routes: of `ip` by default, which it does not show, of the kernel and of BIRD (linux/rtnetlink.h). */
const [BOOT, KERNEL, BIRD] = ['3', '2', '12']
const KNOWN: readonly string[] = [String(PROTO), KERNEL, BIRD]

type Family = 4 | 6
/** A link, the reason for its choice, and a test for the wanted addresses if there are any. */
interface Found {
  readonly row: LinkRow
  readonly why: string
  readonly asked?: (local: string) => boolean
}

function chooseLink(
  { links, routes, reach }: Sight,
  wish: UplinkPreferences,
  families: readonly Family[],
  before?: Pick<Uplink, 'name' | 'index' | 'tunnel'>,
): Found {
  const holder = (ip: string) => links.find(({ addr_info }) => addr_info.some(({ local }) => local === ip))
  const called = ({ ifname, addr_info }: LinkRow) =>
    `${ifname} (${addr_info.map(({ local }) => local).join(' ') || 'no address'})`
  const there = () =>
    links
      .filter(({ ifname }) => ifname !== 'lo')
      .map(called)
      .join(', ')
  for (const family of families) {
    const asked = wish.tunnel[key(family)]
    const row = asked && holder(asked)
    if (row) return { row, why: `${row.ifname} has the tunnel address ${asked}` }
    if (asked) throw new ValueError(`Cannot begin tunnels at ${asked}: no link has that address; there are ${there()}`)
  }
  for (const wanted of wish.ifaces) {
    const row = holder(canonical(wanted)) ?? links.find(({ ifname }) => ifname === wanted)
    if (!row) continue
    const why = `${row.ifname} is the first of --iface that is there`
    return { row, why, asked: (local) => local === canonical(wanted) }
  }
  for (const pattern of wish.patterns) {
    const found = matching(links, new RegExp(pattern), families)
    if (found) return { ...found, why: `${found.row.ifname} matches --iface-regex ${shown(pattern)}` }
  }
  if (wish.canReach !== undefined) {
    const row = links.find(({ ifname }) => ifname === reach?.dev)
    if (row) return { row, why: `${row.ifname} leads to ${wish.canReach}`, asked: (local) => local === reach?.prefsrc }
  }
  const asked = [
    ...wish.ifaces.map((one) => `--iface ${one}`),
    ...wish.patterns.map((one) => `--iface-regex ${one}`),
    ...(wish.canReach ? [`--iface-can-reach ${wish.canReach}`] : []),
  ]
  if (asked.length > 0) throw new ValueError(`Cannot find the uplink by ${asked.join(', ')}: there are ${there()}`)
  for (const family of families) {
    const address = wish.advertise[key(family)]
    const row = address && holder(address)
    if (row) return { row, why: `${row.ifname} has the public address ${address}` }
  }
  const tunnels = new Set(links.flatMap(({ ifname, flags }) => (flags.includes('POINTOPOINT') ? [ifname] : [])))
  const eligible = routes.filter((row) => !devicesOf(row).some((dev) => tunnels.has(dev)))
  return (before && kept(links, eligible, families, before)) ?? byDefaultRoute(links, routes, eligible, families, there)
}

// Keeps the link of the previous choice. Another link takes over when it has a default route and this one lost its own.
function kept(
  links: readonly LinkRow[],
  eligible: readonly RouteRow[],
  families: readonly Family[],
  { name, index, tunnel }: Pick<Uplink, 'name' | 'index' | 'tunnel'>,
): Found | undefined {
  const row = links.find(({ ifname, ifindex }) => ifname === name && ifindex === index)
  if (!row?.flags.includes('UP') || row.flags.includes('NO-CARRIER')) return undefined
  const asked = (local: string) => local === tunnel.v4 || local === tunnel.v6
  if (!families.every((family) => usable(row, family).some(({ local }) => asked(local)))) return undefined
  const hasLostRoute = families.some((family) => {
    const devices = eligible.filter((one) => one.dst === 'default' && one.family === family).flatMap(devicesOf)
    return devices.length > 0 && !devices.includes(name)
  })
  if (hasLostRoute) return undefined
  const isFirst = families.every((family) => devicesOf(defaultRoute(eligible, family))[0] === name)
  const why = isFirst ? `${name} has the default route` : `${name} was chosen before, is up and has its address`
  return { row, why, asked }
}

// The tunnel of a VPN does not lead to the other nodes, unless a setting says so.
function byDefaultRoute(
  links: readonly LinkRow[],
  routes: readonly RouteRow[],
  eligible: readonly RouteRow[],
  families: readonly Family[],
  there: () => string,
): Found {
  const found = families.map((family) => ({ family, dev: devicesOf(defaultRoute(eligible, family))[0] }))
  for (const { family, dev } of found) {
    if (dev !== undefined) continue
    const [over] = devicesOf(defaultRoute(routes, family))
    const tunnel = `leads over ${over}, a point-to-point link, which is never chosen unasked`
    const why =
      over === undefined ? `there is no IPv${family} default route` : `the IPv${family} default route ${tunnel}`
    throw new ValueError(`Cannot find the uplink: ${why}; name the link with --iface (there are ${there()})`)
  }
  const [first, second] = found
  if (second && second.dev !== first?.dev) {
    const why = `the IPv4 default route leads over ${first?.dev}, the IPv6 one over ${second.dev}`
    throw new ValueError(`Cannot find the uplink: ${why}; name the link with --iface`)
  }
  const row = links.find(({ ifname }) => ifname === first?.dev)
  if (!row) throw new CniError(CODE.internal, `Cannot find the link ${first?.dev} of the default route`)
  return { row, why: `${row.ifname} has the default route` }
}

// As in flannel, an address of any link matches first, then a name. With two families, the link needs both.
function matching(
  links: readonly LinkRow[],
  pattern: RegExp,
  families: readonly Family[],
): Omit<Found, 'why'> | undefined {
  const asked = (local: string) => pattern.test(local)
  const inAll = (row: LinkRow, fits: (row: AddrRow) => boolean) =>
    families.every((family) => usable(row, family).some(fits))
  const byAddress = links.find((row) => inAll(row, ({ local }) => asked(local)))
  if (byAddress) return { row: byAddress, asked }
  const row = links.find((row) => pattern.test(row.ifname) && inAll(row, () => true))
  return row && { row }
}

// The lowest metric wins. Of equal metrics the first in the kernel's order wins.
function defaultRoute(routes: readonly RouteRow[], family: Family): RouteRow | undefined {
  const all = routes.filter((row) => row.dst === 'default' && row.family === family && devicesOf(row).length > 0)
  return [...all].sort((a, b) => (a.metric ?? 0) - (b.metric ?? 0))[0]
}

function devicesOf(row: RouteRow | undefined): string[] {
  if (!row) return []
  return row.dev !== undefined ? [row.dev] : (row.nexthops ?? []).flatMap(({ dev }) => dev ?? [])
}

// Prefers the wanted address, then the address for peers. After these, global comes before link-local, permanent before
// dynamic, and lasting before temporary.
function addressOf(
  row: LinkRow,
  family: Family,
  asked: (local: string) => boolean = () => false,
  announced?: Ip,
): Ip | undefined {
  const all = usable(row, family)
  const rank = ({ scope, dynamic, temporary }: AddrRow) =>
    (scope === 'global' ? 0 : 4) + (dynamic ? 2 : 0) + (temporary ? 1 : 0)
  const best =
    all.find(({ local }) => asked(local)) ??
    all.find(({ local }) => local === announced) ??
    all.sort((a, b) => rank(a) - rank(b))[0]
  return best && parseIp(best.local)
}

// Host-scope addresses of a loopback device are not usable, but its other addresses are.
function usable({ addr_info }: LinkRow, family: Family): AddrRow[] {
  return addr_info.filter((one) => isOf(one, family) && one.scope !== 'host' && !one.deprecated && !one.dadfailed)
}

function isOf({ family }: AddrRow, wanted: Family): boolean {
  return family === (wanted === 6 ? 'inet6' : 'inet')
}

function routesOf(rows: readonly RouteRow[]): Uplink['routes'] {
  const all = rows.flatMap((row) => {
    const [dev] = devicesOf(row)
    if (dev === undefined || row.protocol === String(PROTO)) return []
    const everywhere = (row.family === 6 ? '::/0' : '0.0.0.0/0') as Cidr
    const dst = row.dst === 'default' ? everywhere : cidrOf(row.dst)
    const gateway = row.gateway !== undefined || row.via !== undefined || row.nexthops !== undefined
    return [{ dst, dev: dev as IfName, gateway }]
  })
  return all.sort((a, b) => split(b.dst).length - split(a.dst).length)
}

function cidrOf(dst: string): Cidr {
  return (dst.includes('/') ? dst : `${dst}/${dst.includes(':') ? 128 : 32}`) as Cidr
}

function canonical(text: string): string {
  try {
    return parseIp(text)
  } catch {
    // The text is a link's name.
    return ''
  }
}

function key(family: Family): 'v4' | 'v6' {
  return family === 4 ? 'v4' : 'v6'
}

function pick(all: Both<Ip>, families: readonly Family[]): Both<Ip> {
  return Object.fromEntries(families.flatMap((family) => (all[key(family)] ? [[key(family), all[key(family)]]] : [])))
}
