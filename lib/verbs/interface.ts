import type { Call, Verbs } from '../cni/call.ts'
import type { Attachment, InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { readEntry, ready } from '../journal/journal.ts'
import { following, isElsewhere } from '../journal/ports.ts'
import { linkFacts } from '../os/links.ts'
import { inside } from '../os/netns.ts'
import { routesNow } from '../os/route-tables.ts'
import type { Route } from '../state/kinds/route.ts'
import { differences } from '../state/observe.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import { nodeFacts } from '../wiring/node-facts.ts'
import { add } from './add.ts'
import { readConf, requirePod, requirePrevious } from './call.ts'
import { asTheirs, isForeign, logTheirs } from './foreign.ts'
import { together } from './fused.ts'
import { del, gc, poolOf } from './removal.ts'

/**
 * The verbs of a plugin that makes the container's link from the resources of `wire`. A failed ADD removes all that it
 * made. DEL needs only the owner of the attachment.
 */
export function interfaces<C extends NetConf>(plugin: InterfacePlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    del: (call) => del(plugin, call),
    gc: (call) => gc(plugin, call),
    async status(call) {
      const conf = readConf(plugin, call)
      const whole = await together(plugin, conf, call)
      await (await poolOf(conf, call))?.status()
      ready()
      await whole.status?.(conf, call.io.run)
    },
  }
}

async function check<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  await (await poolOf(conf, call))?.check()
  const whole = await together(plugin, conf, call)
  const isTheirs = isForeign(plugin, at, given)
  const { shared, own, later = [], noted = [] } = (isTheirs ? plugin : whole).wire(conf, at, given, nodeFacts)
  const parts = noted.flatMap((one) => following(one.own, (claim) => !isElsewhere(claim)))
  const wanted = isTheirs ? asTheirs([...shared, ...own, ...later]) : [...shared, ...own, ...later, ...parts]
  const wrong = [
    ...(await differences(unmoved(at, wanted), io.run)),
    ...((isTheirs && (await whole.checkForeign?.(conf, at, given, io.run))) || []),
  ]
  if (wrong.length > 0)
    throw new CniError(
      CODE.internal,
      `Cannot confirm ${at.ifname} of container ${at.containerId}: ${wrong[0]}`,
      wrong.join('; '),
    )
  if (isTheirs && wanted.length > 0) logTheirs(conf.type, at)
}

/**
 * The resources that are still at the place where the interface plugin made them. Left out are the routes that a later
 * plugin of the list has moved to another table.
 */
export function unmoved(owner: Attachment, resources: readonly Resource[]): Resource[] {
  if (!resources.some(({ kind }) => kind === 'route')) return [...resources]
  // vrf and sbr take routes out of the main table. They note these routes in the journal, and their own CHECK checks
  // them.
  const noted = Object.values(readEntry(owner)?.parts ?? {}).flatMap((part) => part?.own ?? [])
  const taken = noted.flatMap((one) => (one.kind === 'rerouted' || one.kind === 'unrouted' ? one.route : []))
  const routes = taken.length > 0 ? taken : elsewhere(owner)
  const moved = new Set(routes.map(placeOf))
  return resources.filter(
    (one) => one.kind !== 'route' || one.ns === 'host' || one.table !== undefined || !moved.has(placeOf(one)),
  )
}

// The reference plugins keep no note of moved routes. The moved routes are the link's routes in other tables.
function elsewhere({ netns, ifname }: Attachment): Route[] {
  if (netns === undefined) return []
  return inside(netns, () => {
    const link = linkFacts(ifname)
    return link ? routesNow(link.index, ifname).filter(({ dev, table }) => dev !== '' && !ORDINARY.includes(table)) : []
  }).map((one): Route => ({ kind: 'route' as const, ...one, ns: netns }))
}

// main and local
const ORDINARY = [254, 255]

// The kernel adds a metric and a scope that the plan does not have. So only device, destination and gateways count.
function placeOf({ dev, dst, via }: Route): string {
  return [dev, dst, ...[...via].sort()].join(' ')
}
