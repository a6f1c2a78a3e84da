import type { Cidr, Ip } from '../lib/ip.ts'

/** One value per address family; a family that the network does not have is absent. */
export interface Both<T> {
  readonly v4?: T
  readonly v6?: T
}

/** A node's part of the network, as the store has it. */
export interface Lease<Data = unknown> {
  /** Whose it is, as far as the store knows: flannel's leases carry no name. */
  readonly node?: string
  /** Network addresses with their prefix length. */
  readonly subnets: Both<Cidr>
  /** What peers send to (`PublicIP`, `PublicIPv6`). */
  readonly ips: Both<Ip>
  /** `BackendType`; flannel's udp, alloc and tencent-vpc publish none. */
  readonly backend: string
  /** `BackendData` and `BackendV6Data`. */
  readonly data: Both<Data>
  /** When it ends unless renewed, in milliseconds since 1970; absent for one that does not (a reservation, the file store). */
  readonly expires?: number
}

/** A lease's name in every store, flannel's: `10.5.16.0-24`, with IPv6 `10.5.16.0-24&fd00:0:0:7::-64`. */
export type SubnetKey = string & { readonly __brand: 'SubnetKey' }

/** What there is of both families, IPv4 first. */
export function both<T>({ v4, v6 }: Both<T>): T[] {
  return [...(v4 === undefined ? [] : [v4]), ...(v6 === undefined ? [] : [v6])]
}

/** Whether two pairs of texts are the same. */
export function isSame(one: Both<string>, other: Both<string>): boolean {
  return one.v4 === other.v4 && one.v6 === other.v6
}
