import type { Cidr, Ip } from './ip.ts'
import type { Passage } from './passage.ts'
import type { Qdisc, Redirect } from './shaping.ts'
import type { IfName, Mac, NetnsPath, NetworkName } from './values.ts'

/** Which namespace a resource lives in: the one plumb was started in, or the pod's. */
export type Netns = 'host' | NetnsPath

/** A link. What is undefined is left to the kernel and not compared. */
export interface Link {
  readonly kind: 'link'
  readonly ns: Netns
  readonly name: IfName
  /** What `ip link add … type` takes; `peer` says that the other half of a veth makes it, `port` that another plugin did. */
  readonly type: 'bridge' | 'veth' | 'vxlan' | 'loopback' | 'peer' | 'port' | 'ifb'
  readonly mac?: Mac
  /** The address is set on a bridge that is there already, too: then it no longer takes its lowest port's. */
  readonly pinned?: true
  readonly mtu?: number
  readonly alias?: string
  readonly promisc?: true
  /** The other end, made with it. */
  readonly peer?: { readonly ns: Netns; readonly name: IfName; readonly mac?: Mac }
  /** The bridge it is a port of, and the port's attributes. */
  readonly port?: { readonly master: IfName; readonly hairpin?: boolean; readonly isolated?: boolean; readonly locked?: boolean }
  readonly vlanFiltering?: true
  readonly vxlan?: Vxlan
  readonly up: boolean
  /** May be there already and be somebody else's: adding it again is no error, and only `drop` by name removes it. */
  readonly shared?: true
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

/** An address on a link. */
export interface Addr {
  readonly kind: 'addr'
  readonly ns: Netns
  readonly dev: IfName
  readonly cidr: Cidr
  /** Duplicate address detection is left on: the address is tentative for one to two seconds (RFC 4862). */
  readonly dad?: true
  /** The kernel makes no route to its subnet of it. */
  readonly noprefixroute?: true
}

/** A route through one link. */
export interface Route {
  readonly kind: 'route'
  readonly ns: Netns
  readonly dev: IfName
  readonly dst: Cidr
  /** More than one is an equal-cost multipath route. */
  readonly via: readonly Ip[]
  readonly mtu?: number
  readonly advmss?: number
  readonly priority?: number
  readonly table?: number
  readonly scope?: number
  /** The address that packets get which have none yet. */
  readonly src?: Ip
  /** The gateway is on the link, whatever the other routes say. */
  readonly onlink?: true
  /** Another link may have a route to the same place: both stay. For IPv4 the first counts: this one, or the one that was there before; those of IPv6 that have gateways the kernel makes one multipath route. */
  readonly beside?: 'prepend' | 'append'
  /** A route to that place which is there already leads elsewhere: an error. */
  readonly exclusive?: true
  /** Who made it (rt_protos); the agent's are all of its own number. */
  readonly proto?: number
  /** The nexthop object it goes through, in place of `via` and `dev` in the line; both still say where that leads. */
  readonly nhid?: number
  /** What it leads to is dropped in silence; `dev` is lo then, and `via` empty. */
  readonly blackhole?: true
}

/** A file below /proc/sys/net of its namespace, named with slashes: `ipv4/ip_forward`. */
export interface Sysctl {
  readonly kind: 'sysctl'
  readonly ns: Netns
  readonly name: string
  readonly value: string
  /** Absence is no error: the kernel lacks the feature (IPv6 switched off). */
  readonly optional?: true
}

/** A static entry of a bridge's forwarding table that no other port can take over. */
export interface Fdb {
  readonly kind: 'fdb'
  readonly ns: Netns
  readonly dev: IfName
  readonly mac: Mac
}

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

/** VLANs of a bridge port. */
export interface Vlan {
  readonly kind: 'vlan'
  readonly ns: Netns
  readonly dev: IfName
  readonly first: number
  readonly last: number
  readonly pvid?: true
  readonly absent?: true
}

/** An element of a set or map of lib/ruleset.nft. `owner` becomes its comment. */
export interface Element {
  readonly kind: 'element'
  readonly ns: Netns
  readonly set: string
  readonly key: string
  readonly value?: string
  readonly owner: string
  /** The path of its owner's record, for one that several attachments may have at once: it goes with the last of them. */
  readonly record?: string
}

/** A host port that belongs to one attachment: `ip` is an address of the node, or any4 or any6. `record` is the path of its owner's record. */
export interface Claim {
  readonly kind: 'claim'
  readonly ns: 'host'
  readonly protocol: string
  readonly port: number
  readonly ip: string
  readonly record: string
}

/** UDP connections to a host port that the kernel still remembers: forgotten whenever the port changes hands, else datagrams go on to the old target. `ip` is the address of the node, absent for all; `pod` is where the port leads. */
export interface Flows {
  readonly kind: 'flows'
  readonly ns: 'host'
  readonly family: 4 | 6
  readonly port: number
  readonly ip?: Ip
  readonly pod: Ip
}

/** A chain of a network, for rules of its own; its elements lead there. */
export interface Chain {
  readonly kind: 'chain'
  readonly ns: Netns
  readonly name: string
  readonly rules: readonly string[]
  /** Its rules are somebody else's: it is only made. */
  readonly kept?: true
}

/** Resources that stand beside what makes them. */
export type { Passage, Qdisc, Redirect }

/** A kernel object that plumb makes, as plain data. */
export type Resource = Link | Addr | Route | Neigh | Tunnel | Nexthop | Sysctl | Fdb | Vlan | Element | Chain | Claim | Flows | Passage | Qdisc | Redirect
/** The kinds of resources; one handler each in lib/kinds. */
export type Kind = Resource['kind']

/** One line for a batch tool. */
export interface Line {
  readonly text: string
  /** What the tool says when it is already so: no failure then. */
  readonly unless?: RegExp
  /** The tool answers this line with JSON: a row of what is there. */
  readonly asks?: true
  /** What is to be done instead when `unless` was the answer. */
  readonly otherwise?: readonly Line[]
}

/** Everything the core knows about one kind of kernel object. */
export interface Handler<R extends Resource> {
  /** The program that takes the lines; `file` for what is written below /proc/sys. */
  readonly tool: 'ip' | 'bridge' | 'nft' | 'file' | 'conntrack' | 'iptables' | 'tc'
  /** What makes it this one: two resources with one key are the same object. */
  key(resource: R): string
  put(resource: R): readonly Line[]
  drop(resource: R): readonly Line[]
  /** What makes one that is there, and ours, as it should be; none when it is. Absent: `put` does. */
  change?(want: R, have: R): readonly Line[]
  /** The command that shows it; the same text for resources that one command shows. Empty: `read` sees for itself. */
  ask(resource: R): string
  /** One row of the answer, as the resource it describes for what `want` asks. */
  read(row: unknown, want: R): R | undefined
}

/** What is to be made and what is to be removed, each in order. */
export interface Plan {
  readonly put: readonly Resource[]
  readonly drop: readonly Resource[]
}

/** Who host state belongs to; every name in the kernel and on disk derives from it. */
export interface Owner {
  readonly network: NetworkName
  readonly containerId: string
  readonly ifname: IfName
}
