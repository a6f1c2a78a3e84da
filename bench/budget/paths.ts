import type { Kind } from './traffic.ts'

/** Two nodes with an agent each. A ClusterIP Service leads to a pod. */
export interface World {
  readonly backend: 'vxlan' | 'host-gw'
  /** Whether a NetworkPolicy is enforced. flanneld has none: such a world is a world of plumb alone. */
  readonly policy: boolean
}
/** The worlds, by name. Each is made once, for all paths in it. */
export const WORLDS = {
  vxlan: { backend: 'vxlan', policy: true },
  'host-gw': { backend: 'host-gw', policy: true },
  'without policy': { backend: 'vxlan', policy: false },
} as const satisfies Readonly<Record<string, World>>
/** The name of a world. */
export type WorldName = keyof typeof WORLDS

/** The pods: two ports of a bridge and two routed ones on node n1, a port of a bridge on n2. */
export const PODS = {
  a1: { node: 'n1', link: 'bridge' },
  a2: { node: 'n1', link: 'bridge' },
  r1: { node: 'n1', link: 'routed' },
  r2: { node: 'n1', link: 'routed' },
  b1: { node: 'n2', link: 'bridge' },
} as const
/** The name of a pod. */
export type PodName = keyof typeof PODS

/** A way of packets, from a pod to a pod or to the Service of b1. */
export interface Path {
  readonly name: string
  readonly world: WorldName
  readonly from: PodName
  readonly to: Exclude<PodName, 'a1' | 'r1'>
  /** By the ClusterIP of the Service whose endpoint is `to`. */
  readonly isService?: boolean
  /** net.bridge.bridge-nf-call-iptables meanwhile; 1 unless given. */
  readonly bridgeFilter?: 0 | 1
  /** Measured of plumb alone, and only when `--paths` names it: no part of the budget. */
  readonly isExtra?: boolean
}
/** The paths, world by world. */
export const PATHS: readonly Path[] = [
  { name: 'one node, bridge', world: 'vxlan', from: 'a1', to: 'a2', bridgeFilter: 0 },
  { name: 'one node, bridge with br_netfilter', world: 'vxlan', from: 'a1', to: 'a2' },
  { name: 'one node, routed', world: 'vxlan', from: 'r1', to: 'r2' },
  { name: 'vxlan', world: 'vxlan', from: 'a1', to: 'b1' },
  { name: 'vxlan, ClusterIP', world: 'vxlan', from: 'a1', to: 'b1', isService: true },
  { name: 'host-gw', world: 'host-gw', from: 'a1', to: 'b1' },
  { name: 'vxlan without policy', world: 'without policy', from: 'a1', to: 'b1', isExtra: true },
]
/** The paths of the budget. */
export const BUDGET_PATHS: readonly Path[] = PATHS.filter(({ isExtra }) => !isExtra)
/** All that is measured of a path, in this order: what leaves connections behind comes last. */
export const KINDS: readonly Kind[] = ['first', 'stream', 'request', 'connection']
