import type { Plan } from '../state/resource.ts'
import { ValueError } from '../text/errors.ts'
import type { Cidr, Ip } from '../text/ip.ts'
import { type IfName, type Mac, parse } from '../text/values.ts'

/**
 * A CNI result in the shape of spec 1.1.0, for every version of the configuration. lib/cni/versions.ts converts results
 * when they are read and written.
 */
export interface Result {
  readonly interfaces?: readonly Interface[]
  readonly ips?: readonly IpConfig[]
  readonly routes?: readonly RouteConfig[]
  readonly dns?: Dns
}
/** An interface in the result. With `sandbox` it is in the pod, otherwise on the node. */
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
/**
 * A route of the result (CNI spec 1.1.0 "Success"). `mtu` and `advmss` are in bytes. A lower `priority` comes first.
 * `table` and `scope` have the numbers of iproute2.
 */
export interface RouteConfig {
  readonly dst: Cidr
  readonly gw?: Ip
  readonly mtu?: number
  readonly advmss?: number
  readonly priority?: number
  readonly table?: number
  readonly scope?: number
}
/** Resolver settings (CNI spec "DNS"), with the terms of resolv.conf(5). */
export interface Dns {
  readonly nameservers?: readonly string[]
  readonly domain?: string
  readonly search?: readonly string[]
  readonly options?: readonly string[]
}

/** The final result, and the changes that are still to be made. */
export interface Settled {
  readonly result: Result
  readonly plan?: Plan
}

/**
 * Reads a value of prevResult.interfaces with a parser. Names in a result can be any text. They are compared with
 * values that go into batch lines. Throws ValueError.
 */
export function previous<T>(parser: (value: unknown) => T, value: unknown): T {
  try {
    return parser(value)
  } catch (cause) {
    throw new ValueError(`Cannot read prevResult.interfaces: ${(cause as Error).message}`, { cause })
  }
}

/** The name of a link in prevResult, as a chained plugin uses it. Throws ValueError. */
export function linkName({ name }: Pick<Interface, 'name'>): IfName {
  try {
    return parse.ifname(name)
  } catch (cause) {
    throw new ValueError(`Cannot read the interface of prevResult ${(cause as Error).message}`, { cause })
  }
}
