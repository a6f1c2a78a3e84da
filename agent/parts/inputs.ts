import type { Run } from '../../lib/os/run.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Backend, Facts } from '../backend/backend.ts'
import type { Probes } from '../backend/probes.ts'
import type { UplinkPreferences } from '../backend/uplink.ts'
import type { ObjectSource } from '../cluster/source.ts'
import type { Lists } from '../doctor/facts/lists.ts'
import type { TunnelSources } from '../firewall/tunnels.ts'
import type { Converger } from '../kernel/converge.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import type { Failures } from '../scheduler/failures.ts'
import type { TableOptions } from '../services/table.ts'
import type { EnforcementSettings, ServicesSettings } from '../settings/settings.ts'
import type { Condition } from '../state/condition.ts'
import type { Status } from '../state/status.ts'
import type { LastKnown } from '../store/last-known.ts'
import type { SubnetStore } from '../store/store.ts'

/**
 * What one run of the agent has before its parts work, in groups. `make.ts` says which part reads which group. The type of
 * a part's options says which fields of them.
 */
export interface Inputs {
  readonly self: SelfInputs
  readonly network: NetworkInputs
  readonly leases: LeaseInputs
  readonly kernel: KernelInputs
  readonly files: FileInputs
  readonly firewall: FirewallInputs
  readonly cluster: ClusterInputs
  readonly reports: Reports
}

/** This node. */
export interface SelfInputs {
  readonly node: string
  /** Tells this node from another node of the same name. */
  readonly identity?: string
  readonly version: string
  readonly wish: UplinkPreferences
  /** The subnets of this node in an earlier run. */
  readonly before?: Both<Cidr>
}

/** The network's configuration, and what this node makes of it. */
export interface NetworkInputs {
  readonly conf: NetworkConf
  readonly backend: Backend
  /** The options of `backend`, already parsed. */
  readonly options: unknown
  readonly facts: Facts
  readonly allowOverlap: boolean
  /** Whether packets of known connections pass the rules by. `auto`: where the kernel can. */
  readonly fastPath: 'auto' | 'off'
  /** Packets to the node's own subnet without a more specific route are dropped. */
  readonly blackhole: boolean
  /** The probes of peers. Absent when probing is off. */
  readonly probes?: Probes
}

/** The leases of all nodes: in the store, and as the last run kept them. */
export interface LeaseInputs {
  readonly store: SubnetStore
  readonly renewMarginMs: number
  /** The state that a previous run kept on disk. Present when the store did not answer at the start. */
  readonly stale?: LastKnown
  /** Keeps on disk what the store reported. Called after each report. */
  checkpoint(known: Pick<LastKnown, 'lease' | 'leases'>): void
}

/** What reads and changes the kernel, and how often. */
export interface KernelInputs {
  readonly converger: Converger
  readonly run: Run
  /** How long changes are gathered before a step, in milliseconds. */
  readonly quietMs: number
  /** How often everything is checked again, in milliseconds. 0 means never. */
  readonly resyncMs: number
}

/** The files of the node, for other programs and for plugins. */
export interface FileInputs {
  /** The path of subnet.env. Other programs read this file. */
  readonly subnetEnv: string
  /** The path of the file with the peers for which a command of the backend ran. */
  readonly addedPeers: string
  /** The folders of networks and plugins, and what reads them (doctor/facts/lists.ts). It throws Error. */
  readonly networks: { readonly dirs: readonly string[]; read(): Lists | undefined }
  /** Writes subnet.env and the remembered lease where their content differs. Gives the paths of the written files. */
  leased(lease: Lease, mtu: number): readonly string[]
  /** Called once every part has done its work. It is called again later when it throws. */
  synced(): Promise<void>
  /** Installs what somebody removed of the plugins and of their network. Returns the paths. Not while one is `held`. */
  reinstall(held: ReadonlySet<string>): Promise<readonly string[]>
}

/** The agent's own nft tables. */
export interface FirewallInputs {
  readonly table: string
  readonly masquerade: boolean
  readonly keep: readonly Cidr[]
  readonly random: boolean
  readonly forward: boolean
  /** The table that refuses tunnelled packets of strangers, and who is no stranger besides the nodes with a lease. */
  readonly tunnels: { readonly table: string; readonly sources: TunnelSources }
}

/** What follows from objects of the cluster, and from BGP. A task is absent when it is off. */
export interface ClusterInputs {
  /** The objects of the cluster. Absent when no part needs them. */
  readonly objects?: ObjectSource
  readonly policy?: PolicyInputs
  readonly services?: TableOptions & Pick<ServicesSettings, 'health' | 'serviceCidrs'>
  /** The file with the configuration of BGP, and the folder of BIRD. */
  readonly bgp?: { readonly file: string; readonly dir: string }
}

/** The settings of NetworkPolicy. */
export interface PolicyInputs {
  /** The path of the socket for questions about policy. */
  readonly socket: string
  /** How policy treats what it refuses. */
  readonly enforcement: EnforcementSettings
  /** The network of pods that the agent installs has a bridge. */
  readonly isBridged: boolean
}

/** Where parts report to. */
export interface Reports {
  /** The current failures of the agent's parts. */
  readonly failures: Failures
  /** Reports a possible change. `look` makes the status, and is called only when somebody reads it. */
  changed(look: () => Status): void
  /** Notes a packet that policy refused, described in one line. */
  refused(text: string): void
  /** Receives the condition of the node after each step. */
  condition(now: Condition): void
  log(text: string): void
  /** The same for something that does not work. */
  warn(text: string): void
}
