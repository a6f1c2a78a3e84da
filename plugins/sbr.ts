import * as v from 'valibot'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import type { IpConfig, Result } from '../lib/cni/result.ts'
import { linkFacts } from '../lib/os/links.ts'
import { inside } from '../lib/os/netns.ts'
import { routesNow, rulesNow } from '../lib/os/route-tables.ts'
import type { Resource } from '../lib/state/resource.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { type Ip, parseIp } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'
import type { NetnsPath } from '../lib/text/values.ts'
import { bySource, removeForeignRules, rulesFor } from '../lib/wiring/source-routing.ts'

const keys = v.object({
  ...common,
  table: v.exactOptional(field.int(1, 2 ** 32 - 1)),
  gateways: v.optional(field.by(readGateways), []),
  addSourceHints: v.optional(field.flag, false),
})
type Conf = v.InferOutput<typeof keys>

/** The plugin `sbr` (upstream plugins/meta/sbr). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'sbr',
  about: 'CNI plugin sbr: source-based routing: each address of the container uses its own interface',
  conf: keys,
  wire,
  look,
  isBlind: 'what it runs depends on the routes that the link has by then',
  async unwireForeign({ table }, at, run) {
    await removeForeignRules(table, at, run)
  },
})

/** The rules and routes of one attachment's addresses. Pure. */
function wire(
  { table, gateways, addSourceHints }: Conf,
  at: Attachment,
  given: Result,
  { before = [] }: NodeFacts,
): Wiring {
  const ns = at.netns as NetnsPath
  const ips = addressesOf(given, at)
  const sourcing = { ns, dev: at.ifname, gateways, hints: addSourceHints }
  if (table === undefined) return { shared: [], own: bySource(ips, sourcing, before), result: given }
  const tables = ips.map(() => table)
  return { shared: [], own: rulesFor(ips, tables, ns, before), result: given }
}

/** The resources of an earlier ADD, then the pod's rules, then its routes of all tables. Empty without such a link. */
function look(_conf: Conf, { ifname, netns }: Attachment, _given: Result, earlier: readonly Resource[]): Resource[] {
  const ns = netns as NetnsPath
  return inside(ns, () => {
    const link = linkFacts(ifname)
    if (!link) return []
    const rules = rulesNow().map((one): Resource => ({ kind: 'rule', ns, ...one }))
    const routes = routesNow(link.index, ifname).map((one): Resource => ({ kind: 'route', ns, ...one }))
    return [...earlier, ...rules, ...routes]
  })
}

// As upstream: an address without an interface index counts. Throws CniError 7 when there is no address.
function addressesOf({ ips = [], interfaces = [] }: Result, { ifname }: Attachment): IpConfig[] {
  const mine = ips.filter(
    ({ interface: index }) => index === undefined || (interfaces[index]?.name ?? ifname) === ifname,
  )
  if (mine.length === 0)
    throw new CniError(
      CODE.config,
      `Cannot route by source: prevResult has no address of ${ifname}`,
      'want sbr after a plugin that gives the link an address',
    )
  return mine
}

function readGateways(value: unknown): Ip[] {
  if (!Array.isArray(value))
    throw new ValueError(`${shown(value)}: want a list of addresses, at most one of each family`)
  const all = value.map(parseIp)
  for (const six of [false, true])
    if (all.filter((one) => isSix(one) === six).length > 1)
      throw new ValueError(`${shown(value)}: want at most one IPv${six ? 6 : 4} address`)
  return all
}
