import type { Ip } from '../../text/ip.ts'
import type { IfName, Mac, Netns } from '../../text/values.ts'

// What a link is, as plumb wants it and as `ip` prints it. `link.ts` has the handler. `podlink.ts`, `vxlan.ts` and
// `ipip.ts` have the lines of families of links.

/** Types of links that are in a pod and have no part on the node. `tun` is the kernel's name for a tap. */
export type PodKind = 'macvlan' | 'ipvlan' | 'vlan' | 'dummy' | 'tun'

/** The attributes that such a link shows (ip-link(8)). */
export interface Likeness {
  /** For a macvlan or ipvlan. */
  readonly mode?: string
  /** For a macvlan: how many broadcast frames the queue takes. */
  readonly bcqueuelen?: number
  /** For a VLAN. */
  readonly id?: number
  /** For a tap. */
  readonly multiQueue?: boolean
}

/** What else making such a link needs: the namespace of the tool, the master link, and the owner and group of a tap. */
export interface Birth {
  readonly by: Netns
  readonly master?: IfName
  readonly owner?: number
  readonly group?: number
  /** The SELinux context in which the tool runs. */
  readonly context?: string
}

/** The attributes of such a link in the output of `ip -d -j addr show`. */
export interface LikenessRow {
  readonly mode?: string
  readonly bcqueuelen?: number
  readonly multi_queue?: boolean
}

/** The attributes of a VXLAN device (ip-link(8)). The kernel can change only `learning` in place. */
export interface Vxlan {
  readonly id: number
  /** The link of the underlay. `local` is the source address of the outer packets. */
  readonly dev: IfName
  readonly local: Ip
  readonly port: number
  readonly learning: boolean
  readonly gbp?: true
  /**
   * Whether the device computes the checksums of inner packets (ethtool tx-checksum-ip-generic). Undefined leaves the
   * choice to the kernel.
   */
  readonly offload?: boolean
}

/**
 * The attributes of an ipip device (ip-link(8)), which sends to any remote address. Its link-layer address is `local`.
 */
export interface Ipip {
  /** The source address of the outer packets. */
  readonly local: Ip
  /**
   * The device sends its packets inside of UDP, from this port to this port (FOU, ip-fou(8)). The kernel takes packets
   * for the device at the port when the port is opened for FOU.
   */
  readonly port?: number
}

/** The output of `ip -d -j link show` for an ipip device. Lists only the keys that plumb reads. */
export interface IpipRow {
  readonly proto?: string
  readonly local?: string
  readonly remote?: string
  readonly ttl?: number
  readonly pmtudisc?: boolean
  /** Absent when the packets go without UDP. */
  readonly encap?: { readonly type?: string; readonly sport?: number; readonly dport?: number; readonly csum?: boolean }
}

/** The output of `ip -d -j link show` for a VXLAN device. Lists only the keys that plumb reads. */
export interface VxlanRow {
  readonly id?: number
  readonly link?: string
  readonly local?: string
  readonly local6?: string
  readonly port?: number
  readonly learning?: boolean
  readonly gbp?: boolean
}

/**
 * A device of the node as it was before the pod got it. The plugin host-device lends such devices. DEL restores that.
 */
export interface Lent {
  readonly name: IfName
  readonly index: number
  readonly mac: string
  readonly permanent?: string
  readonly mtu: number
  readonly isUp: boolean
  /**
   * The earlier alias of the device. Absent when the alias has characters that no tool line can contain. Then the alias
   * stays on the device.
   */
  readonly alias?: string
}

/** A link. The kernel chooses values that are undefined here, and they are not compared. */
export interface Link {
  readonly kind: 'link'
  readonly ns: Netns
  readonly name: IfName
  /**
   * The argument of `ip link add … type`. `peer` is the end of a veth pair that the other end's line makes. `port` is a
   * link that another plugin made. `lent` is a device of the node, and plumb never deletes it.
   */
  readonly type:
    | 'bridge'
    | 'veth'
    | 'vxlan'
    | 'ipip'
    | 'wireguard'
    | 'loopback'
    | 'peer'
    | 'port'
    | PodKind
    | 'ifb'
    | 'lent'
  readonly mac?: Mac
  /** Also sets the MAC address on an existing bridge. From then on it no longer takes the MAC of its lowest port. */
  readonly pinned?: true
  readonly mtu?: number
  readonly alias?: string
  readonly promisc?: true
  /** The other end of the veth pair. The same line makes both ends. */
  readonly peer?: { readonly ns: Netns; readonly name: IfName; readonly mac?: Mac }
  /** The bridge of the port, and the port's attributes. */
  readonly port?: {
    readonly master: IfName
    readonly hairpin?: boolean
    readonly isolated?: boolean
    readonly locked?: boolean
  }
  readonly vlanFiltering?: true
  readonly vxlan?: Vxlan
  readonly ipip?: Ipip
  /** The attributes of a link that has no part on the node, such as a macvlan. */
  readonly like?: Likeness
  /** How to make the link. `name` is then its name at birth. */
  readonly born?: Birth
  /** The name of the link at birth. One line gives the link its final name and its alias. */
  readonly was?: IfName
  readonly up: boolean
  /** The earlier values of a lent device on the node. */
  readonly lent?: Lent
  /**
   * The move of a lent device: the target namespace, the name there, and the values to set. `put` moves the device to
   * the pod, and `drop` moves it back.
   */
  readonly move?: {
    readonly to?: Netns
    readonly name: IfName
    readonly alias?: string
    readonly mac?: Mac
    readonly mtu?: number
  }
  /**
   * The link may exist already and belong to another program. Then adding it is no error. Only `drop` removes it, by
   * name.
   */
  readonly shared?: true
}

/** The output of `ip -d -j addr show dev X` for a link. Lists only the keys that plumb reads. */
export interface LinkRow {
  readonly ifindex: number
  readonly link_index?: number
  readonly ifname: string
  readonly ifalias?: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly txqlen?: number
  readonly master?: string
  readonly address: string
  readonly link_type: string
  readonly promiscuity: number
  readonly linkinfo?: {
    readonly info_kind?: string
    readonly info_data?: { readonly vlan_filtering?: number } & Omit<VxlanRow, 'local'> & IpipRow & LikenessRow
    readonly info_slave_data?: { readonly hairpin?: boolean; readonly isolated?: boolean; readonly locked?: boolean }
  }
  readonly addr_info: readonly AddrRow[]
}

/** One address of a link in the output of `ip -j addr show`. */
export interface AddrRow {
  readonly family: 'inet' | 'inet6'
  readonly local: string
  readonly prefixlen: number
  readonly scope: string
  readonly tentative?: boolean
  readonly dadfailed?: boolean
}
