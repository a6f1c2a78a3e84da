import type { Run } from '../../lib/os/run.ts'
import { show } from '../../lib/os/show.ts'
import { type LinkRow, link } from '../../lib/state/kinds/link.ts'
import type { NeighRow } from '../../lib/state/kinds/neigh.ts'
import type { NexthopRow } from '../../lib/state/kinds/nexthop.ts'
import { OVERLAYS } from '../../lib/state/kinds/overlay.ts'
import { type RouteRow, routeOf } from '../../lib/state/kinds/route.ts'
import type { FdbRow } from '../../lib/state/kinds/tunnel.ts'
import type { Kind, Resource } from '../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { IfName, Mac } from '../../lib/text/values.ts'
import { PROTO } from './marks.ts'
import type { Scope } from './ownership.ts'
import { listWireguard } from './wireguard.ts'

/** A resource as the list shows it. */
export interface ListedResource {
  readonly resource: Resource
  /** The object has attributes that a resource cannot express, so it equals no wanted resource. */
  readonly odd?: true
}
/** The kinds that commands list. */
export type Listed = 'link' | 'addr' | 'nexthop' | 'neigh' | 'tunnel' | 'wgdevice' | 'wgpeer' | 'route'

/**
 * Lists these kinds: all objects on the scope's devices, all nexthops, and all routes with the agent's protocol number.
 * It starts at most four processes, in parallel. Throws ExecError.
 */
export async function list(kinds: ReadonlySet<Kind>, scope: Scope, run: Run): Promise<ListedResource[]> {
  const found: ListedResource[] = []
  const answered = async ({ tool, items }: Question) => {
    const asks = items.map(({ ask }) => ask)
    const answers = await show(tool, asks, run)
    for (const [i, { read }] of items.entries()) for (const row of answers[i] ?? []) found.push(...read(row))
  }
  const wireguard = async () => {
    const all = await listWireguard(scope.links, run)
    for (const resource of all) if (kinds.has(resource.kind)) found.push({ resource })
  }
  const isAsked = kinds.has('wgdevice') || kinds.has('wgpeer')
  await Promise.all([...questions(kinds, scope).map(answered), ...(isAsked ? [wireguard()] : [])])
  return found
}

interface Item {
  readonly ask: string
  read(row: unknown): readonly ListedResource[]
}
interface Question {
  readonly tool: readonly string[]
  readonly items: readonly Item[]
}

function questions(kinds: ReadonlySet<Kind>, { links }: Scope): Question[] {
  const of = (kind: Listed, items: () => readonly Item[]) => (kinds.has(kind) ? items() : [])
  const onLinks = (askOf: (dev: IfName) => string, read: (row: unknown, dev: IfName) => readonly ListedResource[]) =>
    links.map((dev) => ({ ask: askOf(dev), read: (row: unknown) => read(row, dev) }))
  const routes = () => [
    { ask: `route show proto ${PROTO}`, read: (row: unknown) => routeFound(row as RouteRow, PROTO) },
    // flannel's routes name no protocol. ip-route(8) calls this protocol `boot`.
    ...onLinks(
      (dev) => `route show dev ${dev} proto boot`,
      (row, dev) => routeFound({ ...(row as RouteRow), dev }),
    ),
  ]
  const linkAndAddrs = (row: unknown) =>
    [...linkFound(row), ...addrsFound(row as LinkRow)].filter(({ resource }) => kinds.has(resource.kind))
  const hasAddrs = kinds.has('link') || kinds.has('addr')
  const wide = [
    ...(hasAddrs ? onLinks((dev) => `addr show dev ${dev}`, linkAndAddrs) : []),
    // These commands must be the last. In the same process, a later `addr show` shows no addresses.
    ...of('link', () => OVERLAYS.map((type) => ({ ask: `link show type ${type}`, read: linkFound }))),
  ]
  const narrow = [
    ...of('nexthop', () => [{ ask: 'nexthop show', read: nexthopFound }]),
    ...of('neigh', () => onLinks((dev) => `neigh show dev ${dev} nud permanent`, neighFound)),
    ...of('route', routes),
  ]
  const bridges = of('tunnel', () => onLinks((dev) => `fdb show dev ${dev}`, tunnelFound))
  const questions = [
    { tool: ['ip', '-d'], items: wide },
    { tool: ['ip'], items: narrow },
    { tool: ['ip', '-6'], items: of('route', routes) },
    { tool: ['bridge'], items: bridges },
  ]
  return questions.filter(({ items }) => items.length > 0)
}

function linkFound(row: unknown): ListedResource[] {
  const found = link.read(row, { kind: 'link', ns: 'host', name: '' as IfName, type: 'vxlan', up: true })
  return [{ resource: found as Resource }]
}

function addrsFound({ ifname, addr_info }: LinkRow): ListedResource[] {
  return addr_info.map(({ local, prefixlen, dadfailed }) => ({
    resource: { kind: 'addr', ns: 'host', dev: ifname as IfName, cidr: `${local}/${prefixlen}` as Cidr },
    ...(dadfailed ? { odd: true } : {}),
  }))
}

function neighFound(row: unknown, dev: IfName): ListedResource[] {
  const { dst, lladdr, protocol } = row as NeighRow
  if (lladdr === undefined) return []
  const proto = Number(protocol ?? 0)
  return [{ resource: { kind: 'neigh', ns: 'host', dev, ip: dst as Ip, mac: lladdr as Mac, proto } }]
}

// Learned entries have no state. An entry without a destination address does not belong to the agent.
function tunnelFound(row: unknown, dev: IfName): ListedResource[] {
  const { mac, dst, state, port, vni, via } = row as FdbRow
  if (state === undefined || dst === undefined) return []
  const odd = state !== 'permanent' || port !== undefined || vni !== undefined || via !== undefined
  const resource: Resource = { kind: 'tunnel', ns: 'host', dev, mac: mac as Mac, dst: dst as Ip }
  return [{ resource, ...(odd && { odd }) }]
}

// The kernel allows link names that a batch line reads as a quote or a comment. No object of the agent uses one.
function isPlain(dev: string | undefined): boolean {
  return dev === undefined || !/["'#\\]/.test(dev)
}

function nexthopFound(row: unknown): ListedResource[] {
  const { id, gateway, dev, protocol, flags } = row as NexthopRow
  const resource: Resource = {
    kind: 'nexthop',
    ns: 'host',
    id,
    via: (gateway ?? '') as Ip,
    dev: (dev ?? '') as IfName,
    ...(flags?.includes('onlink') ? { onlink: true } : {}),
    proto: Number(protocol ?? 0),
  }
  const odd = gateway === undefined || !isPlain(dev)
  return [{ resource, ...(odd && { odd }) }]
}

function routeFound(row: RouteRow, proto?: number): ListedResource[] {
  if (!isPlain(row.dev)) return []
  const isOtherType = row.type !== undefined && row.type !== 'blackhole' && row.type !== 'unreachable'
  const hasMore = row.nexthops !== undefined || row.prefsrc !== undefined || (row.metrics ?? []).some(hasOtherMetrics)
  const odd = isOtherType || hasMore
  return [{ resource: routeOf(row, proto), ...(odd && { odd }) }]
}

function hasOtherMetrics(metrics: object): boolean {
  return Object.keys(metrics).some((key) => key !== 'mtu')
}
