import type { Zoned } from '../nft/firewalld.ts'
import type { Passage } from '../nft/passage.ts'
import type { Cidr, Ip } from '../text/ip.ts'
import type { IfName, Mac, Netns } from '../text/values.ts'
import type { Qdisc, Redirect } from '../wiring/shaping.ts'
import type { Chain, Claim, Element, Flows } from './filtering.ts'
import type { Lent, Neigh, Nexthop, Tunnel, Vxlan } from './overlay.ts'
import type { Birth, Likeness, PodKind } from './pod-kinds.ts'
import type { Rerouted, Rule, Unrouted, Vrf } from './policy-routing.ts'
import type { Saved, Setting } from './settings.ts'

/** Resources of nft and conntrack. */
export type { Chain, Claim, Element, Flows } from './filtering.ts'
/** Resources of the agent's, and what a device was like. */
export type { Lent, Neigh, Nexthop, Tunnel, Vxlan } from './overlay.ts'
/** Resources that stand beside what makes them. */
export type { Passage, Qdisc, Redirect, Zoned }

/** A link. What is undefined is left to the kernel and not compared. */
export interface Link {
  readonly kind: 'link'
  readonly ns: Netns
  readonly name: IfName
  /** What `ip link add … type` takes; `peer` says that the other half of a veth makes it, `port` that another plugin did, `lent` that it is a device of the node's own, which is never deleted. */
  readonly type: 'bridge' | 'veth' | 'vxlan' | 'loopback' | 'peer' | 'port' | PodKind | 'ifb' | 'lent'
  readonly mac?: Mac
  /** The address is set on a bridge that is there already, too: from then on it no longer takes its lowest port's. */
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
  /** Of a link that stands in a pod alone: what it is like there. */
  readonly like?: Likeness
  /** How it is made, under the name it has then. */
  readonly born?: Birth
  /** The name it was made under: it gets its own, and its alias, at once. */
  readonly was?: IfName
  readonly up: boolean
  /** What a lent device was like on the node. */
  readonly lent?: Lent
  /** Where a lent device goes, what it is called there, and what else of it is set: when it is put, or on its way back when it is dropped. */
  readonly move?: { readonly to?: Netns; readonly name: IfName; readonly alias?: string; readonly mac?: Mac; readonly mtu?: number }
  /** May be there already and be somebody else's: adding it again is no error, and only `drop` by name removes it. */
  readonly shared?: true
}

/** An address on a link. */
export interface Addr {
  readonly kind: 'addr'
  readonly ns: Netns
  readonly dev: IfName
  readonly cidr: Cidr
  /** Duplicate address detection is left on: the address is tentative for one to two seconds (RFC 4862). */
  readonly dad?: true
  /** Another gave it to the link: it is not taken away with this. */
  readonly stays?: true
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
  /** The file it is written through, while the link that it is of still has the name it was made under. */
  readonly through?: string
  /** Absence is no error: the kernel lacks the feature (IPv6 switched off). */
  readonly optional?: true
  /** What it was: put back when it is dropped. */
  readonly before?: string
  /** Others in the pod may rely on it by then: it is put back only when the ADD that set it fails. */
  readonly stays?: true
}

/** A static entry of a bridge's forwarding table that no other port can take over. */
export interface Fdb {
  readonly kind: 'fdb'
  readonly ns: Netns
  readonly dev: IfName
  readonly mac: Mac
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
  /** The port may be another's making, under another name: none is no error. */
  readonly shared?: true
}

/** A kernel object that plumb makes, as plain data. */
export type Resource = Link | Addr | Route | Neigh | Tunnel | Nexthop | Sysctl | Fdb | Vlan | Element | Chain | Claim | Flows | Setting | Saved | Passage | Rule | Unrouted | Qdisc | Redirect | Rerouted | Vrf | Zoned
/** The kinds of resources; one handler each in lib/state/kinds. */
export type Kind = Resource['kind']

/** One line for a batch tool. */
export interface Line {
  readonly text: string
  /** What the tool says when it is already so: no failure then. */
  readonly unless?: RegExp
  /** Only where the namespace has no link of this name. */
  readonly absent?: IfName
  /** The namespace of the tool that gets it, when that is not the resource's: a link of a pod is made by the node. */
  readonly ns?: Netns
  /** What is to be done instead when `unless` was the answer. */
  readonly otherwise?: readonly Line[]
}

/** Everything the core knows about one kind of kernel object. */
export interface Handler<R extends Resource> {
  /** The program that takes the lines; `file` for what is written below /proc/sys. */
  readonly tool: 'ip' | 'ip6' | 'bridge' | 'nft' | 'file' | 'conntrack' | 'iptables' | 'tc' | 'firewalld'
  /** Where it is not the same for all: `ip6` is a process of its own, for IPv6. */
  toolOf?(resource: R): Handler<R>['tool']
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
