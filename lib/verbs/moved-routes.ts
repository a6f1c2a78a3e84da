import type { Attachment } from '../cni/plugin.ts'
import { readEntry } from '../journal/journal.ts'
import { linkFacts } from '../os/links.ts'
import { inside } from '../os/netns.ts'
import { routesNow } from '../os/route-tables.ts'
import type { Route } from '../state/kinds/route.ts'
import type { Resource } from '../state/resource.ts'

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

// The kernel adds a metric and a scope that the plan does not have. So only device, destination and gateways are
// compared.
function placeOf({ dev, dst, via }: Route): string {
  return [dev, dst, ...[...via].sort()].join(' ')
}
