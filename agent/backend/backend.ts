// This folder decides how packets get from node to node. This file is the interface of a backend: a pure function from
// leases to resources. Each file of `types/` is one backend. `uplink.ts` chooses the link to the other nodes.
// `peers.ts` has the code that backends share. `probes.ts` asks peers whether they answer.
import type { Link } from '../../lib/state/kinds/link.ts'
import type { Kind, Resource } from '../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Shape } from '../../lib/text/shape.ts'
import type { IfName, Mac, NetworkName } from '../../lib/text/values.ts'
import type { Both, Lease, SubnetKey } from '../lease/lease.ts'
import type { ChecksumOffload } from './checksum-offload.ts'
import type { Uplink } from './uplink.ts'

/** The resources that a backend wants on this node, and the peers that it cannot reach. */
export interface Wanted {
  readonly resources: readonly Resource[]
  /** For each unreachable peer a clause with the reason, by the key of its lease. */
  readonly problems: ReadonlyMap<SubnetKey, string>
  /** Maps the keys of resources to the lease that each resource reaches. Resources of this node itself are left out. */
  ownersOf(keys: ReadonlySet<string>): ReadonlyMap<string, SubnetKey>
}

/** Packets that a device of a backend takes from any sender. What they hold goes on to the pods. */
export interface Entrance {
  readonly family: 'v4' | 'v6'
  /** A condition of nft that holds for these packets, such as `udp dport 8285`. */
  readonly match: string
  /** The one address of the node at which the device takes them. Absent when it does so at each address. */
  readonly at?: Ip
}

/** One way to get packets from node to node. A backend is pure, except for the files of `equip` and `rotate`. */
export interface Backend<Conf = unknown, Data = unknown> {
  /** Its name in `Backend.Type`. It is also the `BackendType` of its leases, where `leaseType` is absent. */
  readonly type: string
  /** The `BackendType` of its leases. The empty text stands for leases without this key. */
  readonly leaseType?: string
  /** The keys of `Backend` of net-conf.json, without `Type`. */
  readonly shape: Shape<{ readonly Backend: object }>
  /** Reads `Backend` of net-conf.json. Throws ValueError with the name of the key. */
  conf(options: Readonly<Record<string, unknown>>): Conf
  /** The keys of `Backend` that may differ from node to node, so that each node takes a change at once. */
  readonly live?: readonly string[]
  /**
   * Adds to the configuration what this backend keeps on the node, such as a key. Makes it when it is not there. Throws
   * Error when it cannot be read or written.
   */
  equip?(conf: Conf, place: BackendHome): Conf
  /**
   * Gives this node another key and returns the public one. The next `announce` has it. Absent in a backend without
   * keys. `self` is this node's lease as the store has it. Throws Error while the store does not have the key before,
   * and when it cannot be written.
   */
  rotate?(conf: Conf, self: Lease | undefined): string
  /** The MTU of pods in bytes, from the uplink's MTU and the active families. */
  mtu(conf: Conf, uplink: number, families: Both<unknown>): number
  /**
   * The data that peers need about this node. It is the same after a restart. `existing` has the MACs of the backend's
   * devices at the agent's start.
   */
  announce(node: string, uplink: Uplink, conf: Conf, existing?: ReadonlyMap<string, Mac>): Both<Data>
  /**
   * The MACs that this node announced earlier, by device name. Devices that are made again get the same MAC. Absent in
   * a backend that announces nothing.
   */
  existing?(conf: Conf, earlier: Both<unknown>): ReadonlyMap<string, Mac>
  /** Parses the data that a node announced. Any program may have written it. Throws ValueError. */
  data(raw: Both<unknown>): Both<Data>
  /**
   * The wanted resources. `self` is this node's lease with its announced data. Unreadable data of a peer is a problem.
   */
  want(self: Lease, peers: readonly Lease[], uplink: Uplink, conf: Conf, facts: Facts): Wanted
  /**
   * The addresses, by family, at which a node with this lease answers probes. Probes also start from them. Empty when
   * the backend does not carry the packets itself.
   */
  answersAt(lease: Lease, conf: Conf): Both<Ip>
  /**
   * The names of the devices that belong to this backend and configuration. Everything on them belongs to the agent.
   */
  links(conf: Conf): readonly Link['name'][]
  /**
   * How routes of BIRD lead to other nodes: by the device of a tunnel, always or where a router is in between. Absent in
   * a backend whose peers need more than a route.
   */
  byBird?(conf: Conf): { readonly device?: IfName; readonly isAlways?: boolean }
  /** Who computes the checksums of inner packets. Absent in a backend that leaves this to the kernel. */
  checksumOffload?(conf: Conf, uplink: Pick<Uplink, 'card'>): ChecksumOffload
  /** The packets that its devices take from anybody. Absent when they know the sender, or when there is no device. */
  entrances?(conf: Conf, uplink: Uplink): readonly Entrance[]
  /** Kinds whose changes the kernel tells nobody, and how often they are listed again, in milliseconds. */
  readonly relist?: { readonly kinds: readonly Kind[]; readonly everyMs: number }
  /**
   * A clause that says why a peer does not answer, as far as the backend can tell. `handshakes` has the ages of the
   * last handshakes in seconds, by public key.
   */
  whySilent?(peer: Lease, handshakes: ReadonlyMap<string, number | undefined>, conf: Conf): string | undefined
  /** The age of the last handshake with a peer in seconds. Undefined without one. `handshakes` is as above. */
  handshakeAge?(peer: Lease, handshakes: ReadonlyMap<string, number | undefined>): number | undefined
  /**
   * The commands that the agent runs for this backend, in `extension` alone. `started` gives the options that hold the
   * output of PreStartupCommand.
   */
  readonly commands?: { of(conf: Conf): Commands; started(conf: Conf, output: string): Conf }
}

/** The node, and its directory for what has to last. */
export interface BackendHome {
  readonly stateDir: string
  readonly node: string
}

/** Commands of the network's configuration, by flannel's names. The agent runs them as root, without a shell. */
export interface Commands {
  /** Runs before the node has a subnet. Its output is what the node announces. */
  readonly PreStartupCommand?: string
  /** Runs when the node has its subnet. */
  readonly PostStartupCommand?: string
  /** Runs for each peer at the agent's start, and for each that comes or changes later. */
  readonly SubnetAddCommand?: string
  /** Runs for each peer that goes or changes. */
  readonly SubnetRemoveCommand?: string
}

/** Facts about the kernel, this agent and the network. */
export interface Facts {
  /** The kernel has nexthop objects (Linux 5.3). */
  readonly nexthops: boolean
  /** The agent's name on this node. It marks devices, and the ids of nexthops derive from it. */
  readonly instance: NetworkName
  /** The MACs of the backend's devices that existed when the agent started. */
  readonly existing?: ReadonlyMap<string, Mac>
  /** The networks that contain the subnets of peers. */
  readonly networks: readonly Cidr[]
}
