import type { IfName, Netns } from '../text/values.ts'

/** Links that stand in a pod with nothing of them on the node; `tun` is what the kernel calls a tap. */
export type PodKind = 'macvlan' | 'ipvlan' | 'vlan' | 'dummy' | 'tun'

/** What such a link shows (ip-link(8)). */
export interface Likeness {
  /** Of a macvlan or ipvlan. */
  readonly mode?: string
  /** Of a macvlan: how many broadcast frames may wait. */
  readonly bcqueuelen?: number
  /** Of a VLAN. */
  readonly id?: number
  /** Of a tap. */
  readonly multiQueue?: boolean
}

/** What makes such a link beside its likeness: the namespace of the tool that is told, the link it stands on, and whose a tap is. */
export interface Birth {
  readonly by: Netns
  readonly master?: IfName
  readonly owner?: number
  readonly group?: number
  /** The SELinux context in which the tool runs. */
  readonly context?: string
}
