import type { Unrouted } from '../policy-routing.ts'
import type { Handler } from '../resource.ts'
import { route } from './route.ts'

/** Routes that are taken away, and put back first among their like, whatever the kernel says to it: nothing must keep a DEL from going on. */
export const unrouted: Handler<Unrouted> = {
  tool: 'ip',
  key: ({ route: one }) => `un${route.key(one)}`,
  put: ({ route: one }) => route.drop(one),
  drop: ({ route: one }) => route.put({ ...one, beside: 'prepend' }).map((line) => ({ ...line, unless: /(?:)/ })),
  ask: () => '',
  // The kernel makes those of addresses anew whenever the link comes up: no fault.
  read: (_row, want) => want,
}
