import type { Cidr, Ip } from '../lib/ip.ts'

/** The subnets of one family: network addresses of `length` from `min` to `max`, both included. */
export interface Pool {
  readonly network: Cidr
  readonly length: number
  readonly min: Ip
  readonly max: Ip
}

/** net-conf.json, read and judged: a pool for each family that is on. */
export interface NetworkConf {
  readonly v4?: Pool
  readonly v6?: Pool
  /** `Backend`: its Type in lower case, `vxlan` unless given, and the other keys as they came. */
  readonly backend: { readonly type: string; readonly options: Readonly<Record<string, unknown>> }
  /** As flannel publishes it; plumb masquerades by nft either way. */
  readonly enableNFTables: boolean
}
