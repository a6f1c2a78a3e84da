import type { Plan } from '../state/resource.ts'
import type { Cidr, Ip } from '../text/ip.ts'
import type { Mac } from '../text/values.ts'

/** A CNI result in the shape of spec 1.1.0, whatever version the configuration speaks; lib/cni/versions.ts converts at the edge. */
export interface Result {
  readonly interfaces?: readonly Interface[]
  readonly ips?: readonly IpConfig[]
  readonly routes?: readonly RouteConfig[]
  readonly dns?: Dns
}
/** A link of the result: on the node, or in the pod when it has a `sandbox`. */
export interface Interface {
  readonly name: string
  readonly mac?: Mac | string
  readonly mtu?: number
  readonly sandbox?: string
  readonly socketPath?: string
  readonly pciID?: string
}
/** An address of the result and its gateway. */
export interface IpConfig {
  /** Index into `interfaces`. */
  readonly interface?: number
  readonly address: Cidr
  readonly gateway?: Ip
}
/** CNI spec 1.1.0 "Success": mtu and advmss in bytes, priority lower first, table and scope as iproute2 numbers them. */
export interface RouteConfig {
  readonly dst: Cidr
  readonly gw?: Ip
  readonly mtu?: number
  readonly advmss?: number
  readonly priority?: number
  readonly table?: number
  readonly scope?: number
}
/** Resolver settings (CNI spec "DNS"), as resolv.conf(5) has them. */
export interface Dns {
  readonly nameservers?: readonly string[]
  readonly domain?: string
  readonly search?: readonly string[]
  readonly options?: readonly string[]
}

/** The final result, and what else is to be put right. */
export interface Settled {
  readonly result: Result
  readonly plan?: Plan
}
