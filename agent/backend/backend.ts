// How packets get from node to node. This file is the interface of a backend: a pure function from leases to resources. Each file of `types/` is one backend.
// `uplink.ts` chooses the link to the other nodes, `peers.ts` has what backends share, `probes.ts` asks peers whether they answer.
import type { Link } from '../../lib/state/kinds/link.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Mac, NetworkName } from '../../lib/text/values.ts'
import type { Both, Lease, SubnetKey } from '../lease/lease.ts'
import type { Uplink } from './uplink.ts'

/** What a backend wants of this node, and what of it cannot be had. */
export interface Wanted {
  readonly resources: readonly Resource[]
  /** Why a peer cannot be reached, as a clause, by the key of its lease. */
  readonly problems: ReadonlyMap<SubnetKey, string>
  /** Which lease each of these resources, named by their keys, reaches; a resource of this node's own is not among them. */
  ownersOf(keys: ReadonlySet<string>): ReadonlyMap<string, SubnetKey>
}

/** How packets get from node to node: one file per way, pure. */
export interface Backend<Conf = unknown, Data = unknown> {
  /** `BackendType` of its leases. */
  readonly type: string
  /** Reads `Backend` of net-conf.json. Throws ValueError naming the key. */
  conf(options: Readonly<Record<string, unknown>>): Conf
  /** What a pod's packet may hold, by what the uplink's may and the families that are on. */
  mtu(conf: Conf, uplink: number, families: Both<unknown>): number
  /** What peers need to know of this node: the same after a restart. `standing` are the MACs of the backend's devices that were there when the agent began. */
  announce(node: string, uplink: Uplink, conf: Conf, standing?: ReadonlyMap<string, Mac>): Both<Data>
  /** The MACs that a node announced earlier, by device: they stay when the devices are made again. Absent where nothing is announced. */
  standing?(conf: Conf, earlier: Both<unknown>): ReadonlyMap<string, Mac>
  /** What a node announced, read from anybody's JSON. Throws ValueError. */
  data(raw: Both<unknown>): Both<Data>
  /** `self` is this node's lease with what it announced; peers are read here, and one that cannot be is a problem. */
  want(self: Lease, peers: readonly Lease[], uplink: Uplink, conf: Conf, facts: Facts): Wanted
  /** Where a node of this lease answers when packets get there by this backend, by family: probes go from there to there. Empty when that is not this backend's business. */
  answersAt(lease: Lease): Both<Ip>
  /** The devices that are this backend's own, of this configuration: everything on them is the agent's. */
  links(conf: Conf): readonly Link['name'][]
}

/** What the kernel can do, which agent of the node this is, and where the pods of all nodes are. */
export interface Facts {
  /** It has nexthop objects (Linux 5.3). */
  readonly nexthops: boolean
  /** The agent's name among those of this node: devices are marked with it, and the ids of nexthops derive from it. */
  readonly instance: NetworkName
  /** The MACs of the backend's devices that were there when the agent began. */
  readonly standing?: ReadonlyMap<string, Mac>
  /** The networks that peers' subnets lie in. */
  readonly networks: readonly Cidr[]
}
