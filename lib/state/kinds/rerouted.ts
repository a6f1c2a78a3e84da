import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import { type Route, route } from './route.ts'

/**
 * A route that the kernel drops when its link gets another table. It is added in that table. `drop` puts it back into
 * its old table.
 */
export interface Rerouted {
  readonly kind: 'rerouted'
  readonly ns: Netns
  readonly dev: IfName
  readonly route: Route
  readonly table: number
}

/**
 * Routes that follow their link into the table of its VRF. `drop` puts them back into the main table and ignores all
 * errors, because a DEL must continue.
 */
export const rerouted: Handler<Rerouted> = {
  tool: 'ip',
  title: ({ ns, route: { dst }, table }) => `route ${dst} in table ${table}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: (one) => route.key(moved(one)),
  put: (one) => route.put(moved(one)),
  drop: ({ route: one }) => route.put({ ...one, position: 'prepend' }).map((line) => ({ ...line, unless: /(?:)/ })),
  ask: (one) => route.ask(moved(one)),
  read: (row, want) => (route.read(row, moved(want)) ? want : undefined),
}

function moved({ route: { proto: _, ...rest }, table }: Rerouted): Route {
  return { ...rest, table }
}

function purpose({ route: { dst }, table }: Rerouted, _: Line, gone: boolean): string {
  return gone ? `${dst} is in the main table again` : `${dst} is in table ${table}, the VRF's`
}
