import type { Ip } from '../../lib/text/ip.ts'
import type { Attempt } from './attempt.ts'
import type { EchoAddress } from './echo-server.ts'
import type { PlaceName } from './end.ts'

/** Which way a packet goes. */
export const WAYS = [
  'pod → pod, same node',
  'pod → pod, other node',
  'pod → its node',
  'pod → other node',
  'node → its pod',
  'node → pod, other node',
  'node → other node',
  'pod → itself by host port',
  'pod → host port, same node',
  'pod → host port, other node',
  'node → its host port',
  'node → host port, other node',
  'pod → itself by Service',
  'pod → Service, same node',
  'pod → Service, other node',
  'node → Service, same node',
  'node → Service, other node',
  'pod → node port, same node',
  'pod → node port, other node',
  'node → node port, other node',
  'pod → DNS of the cluster',
  'pod → outside',
  'policy allows, same node',
  'policy allows, other node',
  'policy denies, same node',
  'policy denies, other node',
] as const
/** One of WAYS. */
export type Way = (typeof WAYS)[number]
/** What is tried on a way. */
export const TESTS = ['TCP', 'UDP', 'SCTP', 'ICMP', 'full size', 'one byte more', 'source address'] as const
/** One of TESTS. */
export type Test = (typeof TESTS)[number]
/** A place on a node, with its address of the family. */
export interface Side {
  readonly node: string
  readonly place: PlaceName
  readonly address: EchoAddress
}
/** Where packets are sent to: a place on a node, what leads to a pod, or an address outside of the cluster. */
export interface Target {
  /** Empty for an address outside, and for the DNS of the cluster. */
  readonly node: string
  readonly place: PlaceName | 'host port' | 'Service' | 'node port' | 'DNS' | 'outside'
  readonly address: EchoAddress
}
/** An address outside of the cluster. With a port a connection is opened, without one an echo request is sent. */
export interface Outside {
  readonly ip: Ip
  readonly port?: number
}
/** What the command line says of the cases. */
export interface CaseOptions {
  /** Only from pod to pod. */
  readonly isQuick?: boolean
  /** Only from node to node, without test pods. */
  readonly isPodless?: boolean
  /** The throughput between nodes is measured, too. */
  readonly isMeasured?: boolean
  /** Among many nodes, each round tests other pairs. */
  readonly round?: number
  readonly outside?: readonly Outside[]
}
/** A way of one family between two places. */
export interface Route {
  readonly way: Way
  readonly family: 'IPv4' | 'IPv6'
  readonly from: Side
  readonly to: Target
  /** What is tried, in the order of TESTS. */
  readonly tests: readonly Test[]
  /** The longest packet that the way carries, in bytes. */
  readonly mtu: number
  /** The addresses by which the receiver may know the sender. */
  readonly sources: readonly Ip[]
  /** The nodes learn of it after a moment: a case that fails is tried again until then. */
  readonly settles?: true
  /** A policy denies it: no packet must arrive. */
  readonly isDenied?: true
  /** A name that a name server has to know. */
  readonly lookUp?: Attempt['lookUp']
}

/** The families, and their keys in a Place. */
export const FAMILIES = [
  ['IPv4', 'v4'],
  ['IPv6', 'v6'],
] as const
