import type { Link, Resource } from '../lib/state.ts'
import type { Both, Lease } from './lease.ts'
import type { Uplink } from './uplink.ts'

/** rt_protos number of all routes, nexthops and neighbours that the agent makes: not in iproute2's rt_protos. */
export const PROTO = 112

/** What a backend wants of this node, and what of it cannot be had. */
export interface Wanted {
  readonly resources: readonly Resource[]
  /** One sentence per peer that cannot be reached, naming it and the reason. */
  readonly problems: readonly string[]
}

/** How packets get from node to node: one file per way, pure. */
export interface Backend<Conf = unknown, Data = unknown> {
  /** `BackendType` of its leases. */
  readonly type: string
  /** Reads `Backend` of net-conf.json. Throws ValueError naming the key. */
  conf(options: Readonly<Record<string, unknown>>): Conf
  /** By how many bytes each packet grows, by the family of the underlay. */
  overhead(conf: Conf): { readonly v4: number; readonly v6: number }
  /** What peers need to know of this node: the same after a restart. */
  announce(node: string, uplink: Uplink, conf: Conf): Both<Data>
  /** What one peer announced, read from anybody's JSON. Throws ValueError. */
  data(raw: Both<unknown>): Both<Data>
  want(self: Lease<Data>, peers: readonly Lease<Data>[], uplink: Uplink, conf: Conf, facts: Facts): Wanted
  /** The devices that are this backend's own, of this configuration: everything on them is the agent's. */
  links(conf: Conf): readonly Link['name'][]
}

/** What the kernel can do. */
export interface Facts {
  /** It has nexthop objects (Linux 5.3). */
  readonly nexthops: boolean
}
