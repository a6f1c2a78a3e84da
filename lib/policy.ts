import type { Ip } from './ip.ts'
import type { Netns, Route } from './state.ts'

/** A rule of policy routing (ip-rule(8)): packets from this address go by that table. */
export interface Rule {
  readonly kind: 'rule'
  readonly ns: Netns
  readonly from: Ip
  readonly table: number
  /** Rules are tried from the lowest on. Without one the kernel would take another each time, and make the same rule twice. */
  readonly priority: number
}

/** A route that is taken away from where it was, and put back when this is dropped. */
export interface Unrouted {
  readonly kind: 'unrouted'
  readonly ns: Netns
  readonly dev: Route['dev']
  readonly route: Route
}
