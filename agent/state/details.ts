// The answers of `/peer` and `/pods`, used by the agent and by the page.
import type { Ip } from '../../lib/text/ip.ts'

/** What the agent wants of the kernel for a peer, and what the kernel has, in the words of `ip` and `bridge`. */
export interface PeerObjects {
  readonly objects: readonly {
    readonly wanted: string
    /** Absent when it is missing. The same text as `wanted` when it is right. */
    readonly found?: string
  }[]
}

/** A pod of this node that plumb's plugins have attached. */
export interface PodView {
  /** `namespace/name`. Absent when no policy is enforced: plugins are not told the name then. */
  readonly pod?: string
  readonly container: string
  /** The pod's interface. */
  readonly ifname: string
  readonly addresses: readonly Ip[]
  /** The link on the node. Absent for a plugin without one. */
  readonly link?: string
  /** The link has a carrier and is up. */
  readonly isUp?: boolean
  /** Bytes and dropped packets of the pod since its start, from its own side. Absent without a link. */
  readonly sent?: number
  readonly received?: number
  readonly dropped?: number
  /** The ports of the node that lead to it, such as `80/tcp`. */
  readonly hostPorts: readonly string[]
  /** The names of the policies that select it. Absent when none is enforced. */
  readonly ingress?: readonly string[]
  readonly egress?: readonly string[]
  /** Policy refuses all of its packets, because the cluster has no object of it yet. */
  readonly isClosed?: boolean
}
