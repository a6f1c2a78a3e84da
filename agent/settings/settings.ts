// What the agent is told. This file has the types; `read.ts` makes them of a command line, an environment and a file, by the table of all settings in `flags.ts`.
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Both } from '../lease/lease.ts'

/** What the agent is told, all of it judged: what is here can be used. Times in milliseconds. */
export interface Settings {
  /** Print the version, or check the settings, and end. */
  readonly only?: 'version' | 'check-config'
  readonly node: string
  readonly store: FileStoreSettings | EtcdSettings | KubeSettings
  readonly uplink: UplinkSettings
  readonly network: NetworkSettings
  readonly firewall: FirewallSettings
  readonly files: FileSettings
  /** Where the status server listens; absent for nowhere. */
  readonly status?: { readonly host: string; readonly port: number /** Only what probes and metrics ask for, not the page. */; readonly probesOnly?: true }
  /** What the person who wrote the settings should be told, one sentence each. */
  readonly notes: readonly string[]
  /** What was said, for the log: `etcd-prefix=/net`. Secrets are left out. */
  readonly said: readonly string[]
}

/** Leases in a folder. */
export interface FileStoreSettings {
  readonly kind: 'file'
  readonly dir: string
  /** net-conf.json, for a folder that has none yet. */
  readonly netConf: string
}

/** Leases in etcd. */
export interface EtcdSettings {
  readonly kind: 'etcd'
  /** URLs, http or https. */
  readonly endpoints: readonly string[]
  /** Without a slash at its end. */
  readonly prefix: string
  /** Files in PEM; key and certificate come together. */
  readonly tls: { readonly key?: string; readonly certificate?: string; readonly authority?: string }
  readonly user?: { readonly name: string; readonly password: string }
  /** How long before its end a lease is renewed. */
  readonly renewMarginMs: number
}

/** Leases in the Kubernetes API. */
export interface KubeSettings {
  readonly kind: 'kube'
  /** A pod's own way to the API when neither this nor `server` is given. */
  readonly kubeconfig?: string
  readonly server?: string
  readonly netConf: string
  readonly annotationPrefix: string
  /** Whether the node's condition NetworkUnavailable is written. */
  readonly setCondition: boolean
  /** The pod that the agent runs in, when nobody said which node it is on: the API knows. */
  readonly pod?: { readonly name: string; readonly namespace: string }
}

/** Which link leads to the other nodes, and which addresses count. */
export interface UplinkSettings {
  /** Names or addresses, tried in order. */
  readonly interfaces: readonly string[]
  /** Then patterns for addresses, else names. */
  readonly patterns: readonly RegExp[]
  /** Then the link of the route to this address. */
  readonly canReach?: Ip
  /** flanneld's public-ip: the link that has it when nothing else names one; advertised unless `advertise` says otherwise. */
  readonly public: Both<Ip>
  readonly tunnel: Both<Ip>
  readonly advertise: Both<Ip>
}

/** How the data path is kept. */
export interface NetworkSettings {
  readonly txChecksumOffload: 'auto' | 'on' | 'off'
  readonly blackhole: boolean
  readonly allowOverlap: boolean
  /** 0: never without a reason. */
  readonly resyncMs: number
  readonly quietMs: number
  /** How often each peer is asked whether it answers; 0: never. */
  readonly probeMs: number
}

/** What is masqueraded and forwarded. */
export interface FirewallSettings {
  readonly masquerade: boolean
  readonly randomFully: boolean
  readonly forward: boolean
  readonly nonMasquerade: readonly Cidr[]
  readonly replaceFlannel: boolean
}

/** Where files of the node are. */
export interface FileSettings {
  readonly subnetEnv: string
  readonly stateDir: string
  readonly install: boolean
  readonly confDir: string
  readonly binDir: string
  /** Where the agent answers `plumb status`. */
  readonly socket: string
}
