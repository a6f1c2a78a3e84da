import type { Ip } from '../text/ip.ts'
import type { IfName, Mac, Netns } from '../text/values.ts'

/** A permanent neighbour. */
export interface Neigh {
  readonly kind: 'neigh'
  readonly ns: Netns
  readonly dev: IfName
  readonly ip: Ip
  readonly mac: Mac
  readonly proto: number
}

/** A permanent entry of a VXLAN device's own forwarding table: behind which address a MAC is. */
export interface Tunnel {
  readonly kind: 'tunnel'
  readonly ns: Netns
  readonly dev: IfName
  readonly mac: Mac
  readonly dst: Ip
}

/** A nexthop object (ip-nexthop(8)): routes through one hash by its number, not by their gateway, of which the kernel keeps all routes of one device in one bucket. */
export interface Nexthop {
  readonly kind: 'nexthop'
  readonly ns: Netns
  readonly id: number
  readonly via: Ip
  readonly dev: IfName
  readonly onlink?: true
  readonly proto: number
}

/** What makes a VXLAN device (ip-link(8)). What of it differs cannot be changed in place, but for `learning`. */
export interface Vxlan {
  readonly id: number
  /** The underlay: the link, and the address that packets go out with. */
  readonly dev: IfName
  readonly local: Ip
  readonly port: number
  readonly learning: boolean
  readonly gbp?: true
  /** Checksums of the inner packets are left to the device (ethtool tx-checksum-ip-generic); undefined leaves it to the kernel. */
  readonly offload?: boolean
}

/** A device of the node as it was before a pod got it. `isMarked` says that it had no alias, so that it bears the attachment's for a while. */
export interface Lent {
  readonly name: IfName
  readonly index: number
  readonly mac: string
  readonly permanent?: string
  readonly mtu: number
  readonly isUp: boolean
  /** Absent for one that is kept: it has letters that no tool's line can hold. */
  readonly alias?: string
}
