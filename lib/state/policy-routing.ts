import type { Ip } from '../text/ip.ts'
import type { IfName, Netns } from '../text/values.ts'
import type { Route } from './resource.ts'

/** A rule of policy routing (ip-rule(8)): packets from this address go by that table. */
export interface Rule {
  readonly kind: 'rule'
  readonly ns: Netns
  readonly from: Ip
  readonly table: number
  /** Rules are tried from the lowest on. Without one the kernel would take another each time, and make the same rule twice. */
  readonly priority: number
}

/** A VRF (ip-vrf(8)): a link whose ports have a table of routes of their own. Ports of several attachments may share one; it goes with the last. */
export interface Vrf {
  readonly kind: 'vrf'
  readonly ns: Netns
  readonly name: IfName
  readonly table: number
}

/** A route that the kernel drops when its link gets another table: made anew in that one, and in its old place when this is dropped. */
export interface Rerouted {
  readonly kind: 'rerouted'
  readonly ns: Netns
  readonly dev: IfName
  readonly route: Route
  readonly table: number
}

/** A route that is taken away from where it was, and put back when this is dropped. */
export interface Unrouted {
  readonly kind: 'unrouted'
  readonly ns: Netns
  readonly dev: IfName
  readonly route: Route
}
