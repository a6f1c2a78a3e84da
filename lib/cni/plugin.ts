import type { SeenLink } from '../os/links.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'
import type { Ip } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import type { Shape } from '../text/shape.ts'
import type { ContainerId, IfName, Mac, Netns, NetnsPath, NetworkName } from '../text/values.ts'
import type { Result, Settled } from './result.ts'

/** The configuration keys that every plugin has. */
export interface NetConf {
  readonly cniVersion: string
  readonly name: NetworkName
  readonly type: string
  readonly ipam?: { readonly type?: string }
}

/** The attachment of a call: container, interface and network. `netns` is absent when DEL came without one. */
export interface Attachment extends Owner {
  readonly containerId: ContainerId
  readonly netns?: NetnsPath
  /** CNI_ARGS, parsed; `IgnoreUnknown` included. */
  readonly args: ReadonlyMap<string, string>
  /** CNI_PATH, split. */
  readonly path: readonly string[]
}

/** The resources of one attachment. `shared` stays when the container goes, `own` goes with it. */
export interface Wiring {
  readonly shared: readonly Resource[]
  readonly own: readonly Resource[]
  readonly result: Result
  /**
   * The resources of chained plugins that work within the calls of this plugin, by plugin type. They belong to the
   * attachment, too. The journal names them by type.
   */
  readonly noted?: readonly { readonly type: string; readonly own: readonly Resource[] }[]
  /** Resources that `settle` makes when they are missing. CHECK expects them, too. */
  readonly later?: readonly Resource[]
  /**
   * Looks at an object that may have existed before, such as a bridge, when all objects are made. Throws CniError, with
   * code 7 for a conflict.
   */
  readonly settle?: (now: Now) => Settled
}
/** Facts about the node's links, from the kernel. */
export type Now = Pick<Run, 'seen' | 'held'>

/** Facts about the node that decide how an attachment is wired. */
export interface NodeFacts {
  /** The identity of this machine. MACs derive from it. Absent where there is no node. */
  readonly machineId?: string
  /** Bridged frames pass the firewall (sysctls net.bridge.bridge-nf-call-iptables and -ip6tables). */
  readonly bridgeNf: boolean
  /** The node's link towards an IPv4 address, by the main routing table. */
  readonly deviceTo?: (ip: Ip) => IfName | undefined
  /** Whether a chained plugin of this type has made objects for an attachment. Absent where there is no node. */
  readonly noted?: (type: string, owner: Owner) => boolean
  /**
   * The sysctls that tuning may set: one regular expression per line of the node's list. Absent when all are allowed.
   * Throws CniError 7 for a bad expression.
   */
  readonly sysctlsAllowed?: readonly RegExp[] | undefined
  /**
   * The answer of a chained plugin's `look`: the pod's settings before this call. Absent when nobody looked. Then
   * nothing has to be restored.
   */
  readonly before?: readonly Resource[]
  /** Facts about a link of a namespace, from the kernel. Undefined when there is no such link. */
  readonly link?: (name: string, ns: Netns) => SeenLink | undefined
  /**
   * The MAC of a bridge that follows its lowest port. Undefined when somebody set the MAC, or without such a bridge.
   */
  readonly floatingMac?: (bridge: IfName) => Mac | undefined
  /** Taps can be made: the node has /dev/net/tun. */
  readonly hasTun?: boolean
  /** firewalld runs, and judges packets by the zones of their sources. */
  readonly hasFirewalld?: boolean
  /** SELinux is on: programs, and what they make, have labels. */
  readonly hasSelinux?: boolean
  /** The link of a namespace's default route. */
  readonly defaultDevice?: (ns: Netns) => IfName | undefined
  /**
   * The node's end of the veth pair whose other end is a pod's link. Null when the link is no veth, or its other end is
   * not on the node. Undefined when the kernel does not tell.
   */
  readonly hostEnd?: (
    pod: Pick<Attachment, 'netns' | 'ifname'>,
  ) => { readonly name: IfName; readonly mtu: number } | null | undefined
}
/** `given` is what the pool returned (interface plugins) or prevResult (chained plugins). Pure. */
export type Wire<C> = (conf: C, at: Attachment, given: Result, node: NodeFacts) => Wiring

/** The answer that a pool would give, with a phrase about its certainty: `free now`. */
export interface Foreseen {
  readonly result: Result
  readonly why: string
}

/** Addresses by owner. Every method but `foresee` holds the pool's lock while it works. */
export interface Pool {
  /** Throws for a configuration or a request that the pool can never satisfy. Called before anything is made. */
  valid(): void
  /**
   * Takes one address per range set for the owner, one of `former` where that is free and no other is wanted. Throws
   * CniError: 11 none free, 7 a wanted address cannot be had.
   */
  take(owner: Owner, former?: readonly Ip[]): Result | Promise<Result>
  /**
   * Predicts the answer of `take`, for `explain`. Locks, takes and writes nothing. A pool that cannot be read gives an
   * example. `isFreed` predicts the answer after a release. Throws like `take`. Absent when the pool cannot predict.
   */
  foresee?(owner: Owner, isFreed?: boolean): Foreseen | Promise<Foreseen>
  /** Frees the addresses of the owner. An owner without addresses is no error. */
  release(owner: Owner): void
  holds(owner: Owner): boolean
  /**
   * For a pool without state. Throws CniError when `previous`, the result of ADD, differs from the pool's answer. CHECK
   * calls this instead of `holds`.
   */
  check?(previous: Result): void
  /** Frees the addresses of the network that belong to none of these owners (GC). */
  keepOnly(owners: readonly Owner[]): void
  /** Throws CniError 50 when the pool cannot give out addresses. */
  ready(): void | Promise<void>
}

/** A plugin: the default export of one file. Its role gives it the standard verbs (lib/verbs). */
export type Plugin<C extends NetConf = NetConf> =
  | InterfacePlugin<C>
  | ChainedPlugin<C>
  | IpamPlugin<C>
  | LeasePlugin<C>
  | DelegatingPlugin<C>
  | MetaPlugin<C>
  | CustomPlugin<C>

interface Described<C> {
  /** One line for a person who starts the plugin by hand. */
  readonly about: string
  readonly conf: Shape<C>
  /** The CNI_ARGS keys that the plugin knows. Absent when it ignores CNI_ARGS. */
  readonly args?: readonly string[]
  /** The tools that make the wiring on the node, besides the first links. ADD starts them early, beside other work. */
  readonly tools?: (conf: C) => readonly (readonly string[])[]
}

/**
 * A chained plugin that works within the calls of an interface plugin: the key that asks for it, and the configuration
 * that it would have in a list.
 */
export interface Within {
  readonly type: string
  readonly key: string
  readonly conf: Readonly<Record<string, unknown>>
}
/** Makes the container's link. */
export interface InterfacePlugin<C extends NetConf> extends Described<C> {
  readonly role: 'interface'
  readonly wire: Wire<C>
  /**
   * The chained plugins that the configuration wants in the same calls. For DEL `conf` holds only what could be read.
   */
  readonly within?: (conf: Partial<C>) => readonly Within[]
  /** The links that need no address. ADD makes them while the pool works. */
  readonly links?: (conf: C, at: Attachment, node: NodeFacts) => readonly Resource[]
  /**
   * The link exists only in the pod. The journal gets the namespace before the link is made. Only a link with the
   * owner's alias is removed there.
   */
  readonly inPod?: true
  /** The links among `shared` that go with the last attachment that needs them (lib/verbs/shared-links.ts). */
  readonly holders?: (conf: C) => readonly IfName[]
  /**
   * The link is a device of the node that moves into the pod. The journal gets its name and settings before the move.
   * `unwire` reads them.
   */
  readonly movesDevice?: true
  /** The resources to drop when only the owner is known. Dropping them drops everything that ADD made. */
  readonly unwire: (owner: Owner & Pick<Attachment, 'netns'>) => readonly Resource[]
  /**
   * Removes the objects that a reference plugin made for the same attachment. Called when plumb made nothing for it.
   * Must succeed when there is nothing.
   */
  readonly unwireForeign?: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /**
   * The missing rules of an attachment that the reference plugin made, one phrase each. CHECK calls this instead of
   * checking plumb's objects. Changes nothing.
   */
  readonly checkForeign?: (conf: C, at: Attachment, given: Result, run: Run) => Promise<readonly string[]>
  /** Removes the objects of reference plugins for attachments whose link is gone (GC). */
  readonly unwireLost?: (run: Run) => Promise<void>
  /** Throws CniError 50 when an ADD cannot work, 51 when it works only in part (CNI spec 1.1.0 STATUS). */
  readonly status?: (conf: C, run: Run) => Promise<void>
  /**
   * Removes the objects that the attachments of a network share, when no attachment is left (GC with an empty list).
   */
  readonly unshare?: (conf: C, run: Run) => Promise<void>
}

/** How a chained plugin works within the calls of an interface plugin. */
export interface Fused {
  /** The key of the interface plugin that holds its settings, or `true`. */
  readonly key: string
  /** Its position among the chained plugins, from 1 on. It is the usual position in lists. */
  readonly place: number
  /** The capability that it takes. */
  readonly capability?: string
  /** The capability's value alone asks for the plugin, without the key. */
  readonly asks?: true
  /** The key may hold the capability's value, which is a list. */
  readonly isList?: true
  /** It gets `args`, too. */
  readonly args?: true
}

/** A plugin that adds to the objects of the plugins before it. `wire` gets prevResult and usually returns it. */
export interface ChainedPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'chained'
  /** The plugin type. The journal names the plugin's objects by it. */
  readonly type: string
  /**
   * How the plugin works within the calls of an interface plugin. Absent when it does not. Keep it in one line, because
   * `npm run tables` reads that line.
   */
  readonly fused?: Fused
  readonly wire: Wire<C>
  /**
   * Reads the pod's current settings. `wire` gets them as `node.before`. ADD and CHECK call it. During ADD no other
   * plugin that looks works in the pod. `noted` is the journal's part of an earlier ADD for the same pod. Starts no
   * process and changes nothing.
   */
  readonly look?: (conf: C, at: Attachment, given: Result, noted: readonly Resource[]) => readonly Resource[]
  /** Why `explain` cannot predict the plugin's objects before the link exists. */
  readonly isBlind?: string
  /**
   * Throws ValueError for faults that only the configuration's text shows, such as a repeated key. `key` is the key of
   * the interface plugin that holds the settings.
   */
  readonly judge?: (text: string, key?: string) => void
  /** Notes for the user about a configuration that works differently from what it says. */
  readonly notes?: (conf: C) => readonly string[]
  /** As for an interface plugin. Called when the journal has no part of the attachment. */
  readonly unwireForeign?: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /**
   * The missing objects of an attachment that the reference plugin made, one phrase each. CHECK calls this when the
   * journal has no part and plumb's objects do not exist. Changes nothing.
   */
  readonly checkForeign?: (conf: C, at: Attachment, given: Result, run: Run) => Promise<readonly string[]>
  /** As for an interface plugin. `base` is the type of the interface plugin within whose calls this plugin works. */
  readonly status?: (conf: C, run: Run, base?: string) => Promise<void>
  readonly unshare?: (conf: C, run: Run) => Promise<void>
}

/** A plugin that gives out addresses. */
export interface IpamPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'ipam'
  /** For DEL `conf` holds only the keys that could be read. */
  readonly pool: (conf: Partial<C>, at: Attachment) => Pool
}

/**
 * A plugin that gets addresses through the container's own link. The link is made before the plugin is asked, and goes
 * after the plugin gave the addresses back. `args` is CNI_ARGS, not parsed.
 */
export interface LeasePlugin<C extends NetConf> extends Described<C> {
  readonly role: 'lease'
  /** Throws for a request that no server can satisfy. Called before anything is made. */
  readonly valid: (conf: C, args: string) => void
  readonly add: (conf: C, at: Attachment, args: string) => Promise<Result>
  readonly check: (conf: C, at: Attachment) => Promise<void>
  /** An owner without addresses is no error. `conf` holds only the keys that could be read. */
  readonly del: (conf: Partial<C>, at: Attachment) => Promise<void>
  /** Gives back the addresses of the network that belong to none of these owners. */
  readonly gc: (conf: C, keep: readonly Owner[]) => Promise<void>
  /** Throws CniError 50 when no address can be had. */
  readonly status: (conf: C) => Promise<void>
}

/**
 * Another interface plugin under different keys. Every verb is that plugin's, in this process (CNI spec 1.1.0 section
 * 4). The translated configuration names the pool. No key of the user names another pool, so CNI_PATH does not matter.
 */
export interface DelegatingPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'delegating'
  /** The type of the plugin that does the work. */
  readonly to: string
  /**
   * The configuration for that plugin. The keys that every plugin has are added unchanged. For DEL `conf` holds only
   * the keys that could be read.
   */
  readonly translate: (conf: Partial<C>) => Readonly<Record<string, unknown>>
}

/** A configuration for another plugin, without `name` and `cniVersion`, which are the network's. */
export interface Rendered {
  readonly type: string
  readonly [key: string]: unknown
}
/**
 * A plugin that delegates to an interface plugin of any type, in this process or as another program. The configuration
 * of ADD is kept on disk, and used again for DEL and CHECK.
 */
export interface MetaPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'meta'
  /** The folder for the kept configurations. */
  readonly dataDir: (conf: Partial<C>) => string
  /**
   * The configuration for the other plugin, on ADD and STATUS. Throws ValueError or CniError when none is possible now.
   */
  readonly render: (conf: C, command: 'ADD' | 'STATUS') => Promise<Rendered>
  /**
   * The same as far as it can be made without waiting, from the keys that can be read. For GC, and for a DEL that finds
   * no kept configuration.
   */
  readonly outline: (conf: Partial<C>) => Rendered
}

/** A plugin with verbs of its own. DEL gets the keys of the configuration that could be read. */
export interface CustomPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'custom'
  readonly add: (conf: C, at: Attachment, run: Run) => Promise<Result>
  readonly check: (conf: C, at: Attachment, run: Run) => Promise<void>
  readonly del: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /** Predicts the work of ADD or DEL and the result of ADD, for `explain`. Pure. Absent when it cannot predict. */
  readonly preview?: (command: 'ADD' | 'DEL', conf: Partial<C>, at: Attachment) => Preview
}
/** The predicted work and result of a custom plugin's verb. */
export interface Preview {
  readonly work: readonly Work[]
  readonly result?: Result
}
/** What a plugin asks of the kernel in a namespace, without a process. Each line has a phrase about its purpose. */
export interface Work {
  readonly ns: Netns
  readonly lines: readonly { readonly text: string; readonly about: string }[]
}

/** Makes the default export of a plugin file, and names the type of its configuration. */
export function definePlugin<C extends NetConf>(plugin: Plugin<C>): Plugin {
  return plugin as unknown as Plugin
}
