import { readEntry } from '../journal/journal.ts'
import type { Owner, Resource, Route } from '../state.ts'

/** Plugins that take routes from the link's main table, note them, and look after them in their own CHECK. */
const MOVING = ['vrf', 'sbr'] as const

/** Those of an attachment's resources that should still be where its interface plugin made them: without the routes that a later plugin of the list has moved. */
export function unmoved(owner: Owner, resources: readonly Resource[]): Resource[] {
  if (!resources.some(({ kind }) => kind === 'route')) return [...resources]
  const entry = readEntry(owner)
  const noted = MOVING.flatMap((type) => entry?.parts[type]?.own ?? [])
  const moved = new Set(noted.flatMap((one) => (one.kind === 'rerouted' || one.kind === 'unrouted' ? [placeOf(one.route)] : [])))
  return resources.filter((one) => one.kind !== 'route' || one.ns === 'host' || one.table !== undefined || !moved.has(placeOf(one)))
}

// What the kernel says of one and what was asked for differ in metrics and scope that nobody chose.
function placeOf({ dev, dst, via }: Route): string {
  return [dev, dst, ...[...via].sort()].join(' ')
}
