import type { Ip } from '../../../lib/text/ip.ts'
import type { Netns } from '../../../lib/text/values.ts'

/** Something on the way of the packets. */
export interface Suspect {
  /** What it is, with its name or text: a clause. */
  readonly text: string
  /** The command that undoes it alone. Absent where it is not known. */
  readonly undo?: string
}
/** The packets that are lost, and the namespace that is looked at. */
export interface Scope {
  readonly ns: Netns
  /** The addresses at both ends of lost packets, those of tunnels among them. */
  readonly ips: readonly Ip[]
  /** The links on the way in this namespace. */
  readonly links: readonly string[]
  /** Ports of the bridge of pods. */
  readonly ports: readonly string[]
  /** UDP ports of tunnels, and ports that were asked for. */
  readonly portNumbers: readonly number[]
  /** The smallest MTU that the links need, in bytes. */
  readonly mtu: number
  /** MAC addresses by address, where plumb knows them. */
  readonly macs: ReadonlyMap<Ip, string>
  /** The links of pods, by their addresses. */
  readonly ways: ReadonlyMap<Ip, string>
  /** The addresses of the node, which are the gateways of its pods. Empty for the node itself. */
  readonly gateways: readonly Ip[]
  /** It is a pod's. */
  readonly isPod: boolean
}
