import type { Rerouted } from '../policy-routing.ts'
import type { Handler, Route } from '../resource.ts'
import { route } from './route.ts'

/** Routes that follow their link into the table of its VRF, and back into the main one, whatever the kernel says to that: nothing must keep a DEL from going on. */
export const rerouted: Handler<Rerouted> = {
  tool: 'ip',
  key: (one) => route.key(moved(one)),
  put: (one) => route.put(moved(one)),
  drop: ({ route: one }) => route.put({ ...one, beside: 'prepend' }).map((line) => ({ ...line, unless: /(?:)/ })),
  ask: (one) => route.ask(moved(one)),
  read: (row, want) => (route.read(row, moved(want)) ? want : undefined),
}

function moved({ route: { proto: _, ...rest }, table }: Rerouted): Route {
  return { ...rest, table }
}
