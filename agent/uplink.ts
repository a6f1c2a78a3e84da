import type { Cidr, Ip } from '../lib/ip.ts'
import type { IfName } from '../lib/values.ts'
import type { Both } from './lease.ts'

/** The link towards the other nodes, and what stands on it. */
export interface Uplink {
  readonly name: IfName
  readonly index: number
  readonly mtu: number
  /** The addresses of the link that tunnels begin at. */
  readonly tunnel: Both<Ip>
  /** The addresses that peers are told: the same, or what a NAT in between makes of them. */
  readonly advertise: Both<Ip>
  /** The node's routes of the main table but for the agent's own, most specific first: `gateway` says that the next hop is a router. */
  readonly routes: readonly { readonly dst: Cidr; readonly dev: IfName; readonly gateway: boolean }[]
}

/** Why this link and these addresses were chosen, for log and status: one sentence. */
export interface Choice {
  readonly uplink: Uplink
  readonly why: string
}
