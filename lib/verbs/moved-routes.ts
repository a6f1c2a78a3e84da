import type { Attachment } from '../cni/plugin.ts'
import { readEntry } from '../journal/journal.ts'
import { linkFacts } from '../os/links.ts'
import { inside } from '../os/netns.ts'
import { routesNow } from '../os/route-tables.ts'
import type { Route } from '../state/kinds/route.ts'
import type { Resource } from '../state/resource.ts'

/** Those of an attachment's resources that should still be where its interface plugin made them: without the routes that a later plugin of the list has moved. */
export function unmoved(owner: Attachment, resources: readonly Resource[]): Resource[] {
  if (!resources.some(({ kind }) => kind === 'route')) return [...resources]
  // Plugins that take routes from the link's main table (vrf, sbr) note them, and look after them in their own CHECK.
  const noted = Object.values(readEntry(owner)?.parts ?? {}).flatMap((part) => part?.own ?? [])
  const taken = noted.flatMap((one) => (one.kind === 'rerouted' || one.kind === 'unrouted' ? one.route : []))
  const routes = taken.length > 0 ? taken : elsewhere(owner)
  const moved = new Set(routes.map(placeOf))
  return resources.filter((one) => one.kind !== 'route' || one.ns === 'host' || one.table !== undefined || !moved.has(placeOf(one)))
}

// What the reference's plugins moved, they note nowhere: the link's routes of other tables.
function elsewhere({ netns, ifname }: Attachment): Route[] {
  if (netns === undefined) return []
  return inside(netns, () => {
    const link = linkFacts(ifname)
    return link ? routesNow(link.index, ifname).filter(({ dev, table }) => dev !== '' && !ORDINARY.includes(table)) : []
  }).map((one): Route => ({ ...one, ns: netns }))
}

// main and local
const ORDINARY = [254, 255]

// What the kernel says of one and what was asked for differ in metrics and scope that nobody chose.
function placeOf({ dev, dst, via }: Route): string {
  return [dev, dst, ...[...via].sort()].join(' ')
}
