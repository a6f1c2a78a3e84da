import * as v from 'valibot'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import type { Result } from '../lib/cni/result.ts'
import { addressesNow } from '../lib/os/link-addresses.ts'
import { linksNow } from '../lib/os/links.ts'
import { inside } from '../lib/os/netns.ts'
import { routesNow, rulesNow } from '../lib/os/route-tables.ts'
import type { Addr } from '../lib/state/kinds/addr.ts'
import type { Rerouted } from '../lib/state/kinds/rerouted.ts'
import type { Route } from '../lib/state/kinds/route.ts'
import type { Setting } from '../lib/state/kinds/setting.ts'
import type { Vrf } from '../lib/state/kinds/vrf.ts'
import type { Resource } from '../lib/state/resource.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { common, field } from '../lib/text/shape.ts'
import type { IfName, NetnsPath } from '../lib/text/values.ts'
import { leaveForeign } from '../lib/wiring/vrfs.ts'

const keys = v.object({
  ...common,
  vrfname: field.ifname,
  // 0: the table of the existing VRF, or the first free table.
  table: v.optional(field.int(0, 2 ** 32 - 1), 0),
})
type Conf = v.InferOutput<typeof keys>
// The scope `global` (iproute2's rt_scopes), and the table `main` (rt_tables).
const [GLOBAL, MAIN] = [0, 254]
const RESERVED = [253, 254, 255]

/** The plugin `vrf` (upstream plugins/meta/vrf). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'vrf',
  about: "CNI plugin vrf: the container's link is a port of a VRF, with routes of its own",
  conf: keys,
  wire,
  look,
  isBlind: 'what it runs depends on the VRFs of the pod and on the addresses and routes that the link has by then',
  async unwireForeign({ vrfname }, at, run) {
    if (vrfname !== undefined) await leaveForeign(vrfname, at, run)
  },
})

/**
 * The VRF, the link as its port, and the link's IPv6 addresses and routes. The kernel removes those when the link
 * becomes a port. Pure.
 */
function wire({ vrfname, table }: Conf, at: Attachment, given: Result, { before = [] }: NodeFacts): Wiring {
  const ns = at.netns as NetnsPath
  const vrf: Vrf = { kind: 'vrf', ns, name: vrfname, table: tableFor(vrfname, table, before) }
  const link = before.find((one): one is Setting => one.kind === 'setting')
  if (link?.master && link.master !== vrfname)
    throw new CniError(
      CODE.config,
      `Cannot make ${at.ifname} a port of VRF ${vrfname}: it is one of ${link.master} already`,
      'a link has one master',
    )
  const addresses = new Map(before.filter((one) => one.kind === 'addr').map((one) => [one.cidr, one]))
  const found = before.flatMap((one): Route[] => {
    if (one.kind === 'rerouted') return [one.route]
    return isOwn(one, at.ifname) ? [one] : []
  })
  const routes = new Map(
    found.map(({ table: _, ...route }) => [JSON.stringify([route.dst, route.via, route.priority]), route]),
  )
  const rerouted = [...routes.values()].map(
    (route): Rerouted => ({ kind: 'rerouted', ns, dev: at.ifname, route, table: vrf.table }),
  )
  return {
    shared: [],
    own: [
      vrf,
      { kind: 'setting', ns, dev: at.ifname, master: vrfname, before: { master: '' } },
      ...addresses.values(),
      ...rerouted,
    ],
    result: given,
  }
}

/**
 * The resources that an earlier ADD moved, then the pod's VRFs and rules, then the link with its global IPv6 addresses
 * and routes. Throws CniError 7 when a link has the VRF's name but is no VRF.
 */
function look(
  { vrfname }: Conf,
  { ifname, netns }: Attachment,
  _given: Result,
  earlier: readonly Resource[],
): Resource[] {
  const ns = netns as NetnsPath
  return inside(ns, () => {
    const links = linksNow()
    const other = links.find(({ name, kind }) => name === vrfname && kind !== 'vrf')
    if (other) {
      const fact = `a link of that name is there, and it is ${other.kind ? `a ${other.kind}` : 'none'}`
      throw new CniError(CODE.config, `Cannot use ${vrfname} as a VRF: ${fact}`, `in ${ns}; want another "vrfname"`)
    }
    const link = links.find(({ name }) => name === ifname)
    const vrfs = links.flatMap(({ name, table }): Vrf[] =>
      table === undefined ? [] : [{ kind: 'vrf', ns, name, table }],
    )
    const rules = rulesNow().map((one): Resource => ({ kind: 'rule', ns, ...one }))
    if (!link) return [...vrfs, ...rules]
    const master = links.find(({ index }) => index === link.master)?.name ?? ''
    const six = addressesNow(link.index).filter(({ cidr, scope }) => isSix(cidr) && scope === GLOBAL)
    const routes = routesNow(link.index, ifname).map((one): Route => ({ kind: 'route', ns, ...one }))
    return [
      ...earlier.filter(({ kind }) => kind === 'rerouted' || kind === 'addr'),
      ...vrfs,
      ...rules,
      { kind: 'setting', ns, dev: ifname, master },
      ...six.map(({ cidr }): Addr => ({ kind: 'addr', ns, dev: ifname, cidr, stays: true })),
      ...routes,
    ]
  })
}

// No connected and no local routes: the kernel makes these from the addresses, in the VRF's table too. IPv6 has no
// scope. For IPv6 every route counts that the kernel did not make.
function isOwn(one: Resource, dev: IfName): one is Route {
  if (one.kind !== 'route' || one.dev !== dev || one.table !== MAIN) return false
  return isSix(one.dst) ? one.proto !== KERNEL : one.scope === GLOBAL
}

// RTPROT_KERNEL of rtm_protocol.
const KERNEL = 2

function tableFor(name: IfName, wanted: number, before: readonly Resource[]): number {
  const vrfs = before.filter((one): one is Vrf => one.kind === 'vrf')
  const found = vrfs.find((one) => one.name === name)
  if (found && wanted && found.table !== wanted)
    throw new CniError(
      CODE.config,
      `Cannot give table ${wanted} to VRF ${name}: it has table ${found.table}`,
      'it is there already; want its table, or another "vrfname"',
    )
  if (found) return found.table
  const other = vrfs.find(({ table }) => table === wanted)
  if (other)
    throw new CniError(
      CODE.config,
      `Cannot give table ${wanted} to VRF ${name}: VRF ${other.name} has it`,
      'want another "table", or none',
    )
  if (wanted) return wanted
  const used = before.flatMap((one) => {
    if (one.kind === 'vrf' || one.kind === 'rule') return [one.table]
    return one.kind === 'route' ? [one.table ?? MAIN] : []
  })
  const taken = new Set([...RESERVED, ...used])
  let free = 1
  while (taken.has(free)) free++
  return free
}
