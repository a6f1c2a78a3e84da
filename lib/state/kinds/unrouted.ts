import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import { type Route, route } from './route.ts'

/** A route that is taken away from where it was, and put back when this is dropped. */
export interface Unrouted {
  readonly kind: 'unrouted'
  readonly ns: Netns
  readonly dev: IfName
  readonly route: Route
}

/** Routes that are taken away, and put back first among their like, whatever the kernel says to it: nothing must keep a DEL from going on. */
export const unrouted: Handler<Unrouted> = {
  tool: 'ip',
  title: ({ ns, route: { dst } }) => `absence of route ${dst}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: ({ route: one }) => `un${route.key(one)}`,
  put: ({ route: one }) => route.drop(one),
  drop: ({ route: one }) => route.put({ ...one, beside: 'prepend' }).map((line) => ({ ...line, unless: /(?:)/ })),
  ask: () => '',
  // The kernel makes those of addresses anew whenever the link comes up: no fault.
  read: (_row, want) => want,
}

function purpose({ route: { dst } }: Unrouted, _: Line, gone: boolean): string {
  return gone ? `${dst} is in the main table again` : `${dst} is no longer in the main table`
}
