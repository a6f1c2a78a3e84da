import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import { type Route, route } from './route.ts'

/** A route that `put` removes and `drop` restores. */
export interface Unrouted {
  readonly kind: 'unrouted'
  readonly ns: Netns
  readonly dev: IfName
  readonly route: Route
}

/**
 * Routes that `put` removes. `drop` puts them back first among routes to the same destination. `drop` ignores all
 * errors, because a DEL must continue.
 */
export const unrouted: Handler<Unrouted> = {
  tool: 'ip',
  title: ({ ns, route: { dst } }) => `absence of route ${dst}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: ({ route: one }) => `un${route.key(one)}`,
  put: ({ route: one }) => route.drop(one),
  drop: ({ route: one }) => route.put({ ...one, position: 'prepend' }).map((line) => ({ ...line, unless: /(?:)/ })),
  ask: () => '',
  // The kernel makes the routes of addresses again whenever the link comes up. Such a route is no fault.
  read: (_row, want) => want,
}

function purpose({ route: { dst } }: Unrouted, _: Line, gone: boolean): string {
  return gone ? `${dst} is in the main table again` : `${dst} is no longer in the main table`
}
