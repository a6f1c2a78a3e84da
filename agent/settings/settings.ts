// The settings of the agent. This file has the types. Begin to read here. `read.ts` builds them from a command line, an
// environment and a file. `flags.ts` has the table of all settings.
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Both } from '../lease/lease.ts'

/** All settings of the agent, checked and ready to use. Times are in milliseconds. */
export interface Settings {
  /** If set, the agent prints the version or checks the settings, and then ends. */
  readonly only?: 'version' | 'check-config'
  readonly node: string
  readonly store: FileStoreSettings | EtcdSettings | KubeSettings
  readonly uplink: UplinkSettings
  readonly network: NetworkSettings
  readonly firewall: FirewallSettings
  readonly files: FileSettings
  /** Where the objects of NetworkPolicy come from. Absent when it is not enforced. */
  readonly policy?: ObjectsFrom
  /** The proxy of Services. Absent when it is off. */
  readonly services?: ServicesSettings
  readonly enforcement: EnforcementSettings
  /** The file with the configuration of BGP. Absent when BGP is off. */
  readonly bgp?: { readonly file: string }
  /** The collector to which spans go, the base of its URL. Absent when they go nowhere. */
  readonly spans?: { readonly endpoint: string }
  /** Address of the status server. Absent when the server is off. */
  readonly status?: {
    readonly host: string
    readonly port: number
    /** Without a token, the server answers probes and metrics only. It does so at any address but a loopback address. */
    readonly probesOnly?: true
    /** The file with the token for everything else. */
    readonly tokenFile?: string
    /** Names of pods, namespaces, policies and Services are left out. */
    readonly isRedacted?: true
  }
  /** Metrics have series for every peer, and not only for the worst. */
  readonly metricsPerPeer: boolean
  /** How the agent writes its log. */
  readonly logFormat: 'plain' | 'text' | 'json'
  /** Notes for the author of the settings, one sentence each. */
  readonly notes: readonly string[]
  /** The settings that the user gave, for the log: `etcd-prefix=/net`. Secrets are left out. */
  readonly said: readonly string[]
}

/** Where the objects of the cluster come from. */
export type ObjectsFrom =
  | { readonly from: 'api'; readonly kubeconfig?: string; readonly server?: string }
  | { readonly from: 'folder'; readonly dir: string }

/** The proxy of Services. */
export interface ServicesSettings {
  readonly objects: ObjectsFrom
  /**
   * Addresses of the node that have NodePorts. Empty: all but loopback. `primary`: the first address of each family in
   * the Node object.
   */
  readonly nodePortAddresses: readonly Cidr[] | 'primary'
  /** Networks of ClusterIPs, besides those of the ServiceCIDR objects. What no Service has there is dropped. */
  readonly serviceCidrs: readonly Cidr[]
  /** The limits of connections in the kernel. Absent beside kube-proxy, which sets its own. */
  readonly conntrack?: ConntrackLimits
  /** Clients of ClusterIPs from elsewhere get the node's address. Empty: none. */
  readonly clusterCidrs: readonly Cidr[]
  readonly masqueradeAll: boolean
  /** Where load balancers ask whether this node serves Services. Absent when nothing answers. */
  readonly health?: { readonly host: string; readonly port: number }
  /** Starts beside the rules of kube-proxy. */
  readonly isForced: boolean
  /** Removes the rules of kube-proxy. */
  readonly replacesKubeProxy: boolean
}

/** How many connections the kernel follows, and for how long. 0 and false leave the kernel's value. Times in seconds. */
export interface ConntrackLimits {
  /** The most connections, per processor, and for the whole node at least `min`. */
  readonly maxPerCore: number
  readonly min: number
  readonly tcpEstablished: number
  readonly tcpCloseWait: number
  readonly udp: number
  readonly udpStream: number
  /** TCP packets outside the window belong to their connection. */
  readonly isTcpLiberal: boolean
}

/** Leases in a folder. */
export interface FileStoreSettings {
  readonly kind: 'file'
  readonly dir: string
  /** net-conf.json for a folder without a network configuration. */
  readonly netConf: string
}

/** Leases in etcd. */
export interface EtcdSettings {
  readonly kind: 'etcd'
  /** URLs, http or https. */
  readonly endpoints: readonly string[]
  /** The key prefix, without a slash at its end. */
  readonly prefix: string
  /** PEM files. The key and the certificate come together. */
  readonly tls: { readonly key?: string; readonly certificate?: string; readonly authority?: string }
  readonly user?: { readonly name: string; readonly password: string }
  /** How long before its end the agent renews a lease. */
  readonly renewMarginMs: number
}

/** Leases in the Kubernetes API. */
export interface KubeSettings {
  readonly kind: 'kube'
  /** A file. Without it and without `server` the agent uses the service account of its pod. */
  readonly kubeconfig?: string
  readonly server?: string
  readonly netConf: string
  readonly annotationPrefix: string
  /** The agent writes the node's condition NetworkUnavailable. */
  readonly setCondition: boolean
  /** The pod of the agent. The API names its node when the user gave no node name. */
  readonly pod?: { readonly name: string; readonly namespace: string }
}

/** Selection of the interface towards the other nodes, and of its addresses. */
export interface UplinkSettings {
  /** Names or addresses, tried in order. */
  readonly interfaces: readonly string[]
  /** Patterns for addresses, else for names. Tried after `interfaces`. */
  readonly patterns: readonly RegExp[]
  /** The interface of the route to this address. Tried after `patterns`. */
  readonly canReach?: Ip
  /**
   * flanneld's public-ip. It selects the interface with this address when no other setting selects an interface. The
   * node advertises it unless `advertise` is set.
   */
  readonly public: Both<Ip>
  readonly tunnel: Both<Ip>
  readonly advertise: Both<Ip>
}

/** Settings of the data path. */
export interface NetworkSettings {
  readonly txChecksumOffload: 'auto' | 'on' | 'off'
  readonly blackhole: boolean
  readonly allowOverlap: boolean
  /** The network's configuration may name commands to run (backend extension). */
  readonly allowExtension: boolean
  /** 0: no resync without a known change. */
  readonly resyncMs: number
  readonly quietMs: number
  /** Interval of the probes to each peer. 0: no probes. */
  readonly probeMs: number
  /** Packets of known connections pass from link to link past the rules. `auto`: where the kernel can. */
  readonly fastPath: 'auto' | 'off'
}

/** Settings of masquerading and forwarding. */
export interface FirewallSettings {
  readonly masquerade: boolean
  readonly randomFully: boolean
  readonly forward: boolean
  readonly nonMasquerade: readonly Cidr[]
  readonly replaceFlannel: boolean
  /** Networks from which tunnelled packets are taken besides the addresses of leases, or `any`. */
  readonly tunnelSources: readonly Cidr[] | 'any'
}

/** How NetworkPolicy treats what it refuses. */
export interface EnforcementSettings {
  /** The agent logs refused packets. */
  readonly isLogged: boolean
  /** Nothing is refused. The log says what would be. */
  readonly isAudit: boolean
  /** Open connections go on when they are no longer allowed. */
  readonly keepsEstablished: boolean
}

/** How pods are connected to the node: by ports of a bridge, or each by a link of its own to which the node routes. */
export type Pods = 'bridge' | 'routed'

/** Paths of files on the node. */
export interface FileSettings {
  readonly subnetEnv: string
  readonly stateDir: string
  readonly install: boolean
  /** How the installed network connects pods. */
  readonly pods: Pods
  readonly confDir: string
  readonly binDir: string
  /** The socket for `plumb status`. */
  readonly socket: string
  /** The socket for the plugin `policy`. Nothing listens there unless NetworkPolicy is enforced. */
  readonly policySocket: string
}
