import type { SeenLink } from '../os/links.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'
import type { Ip } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import type { Shape } from '../text/shape.ts'
import type { ContainerId, IfName, Mac, Netns, NetnsPath, NetworkName } from '../text/values.ts'
import type { Result, Settled } from './result.ts'

/** The configuration keys every plugin has. */
export interface NetConf {
  readonly cniVersion: string
  readonly name: NetworkName
  readonly type: string
  readonly ipam?: { readonly type?: string }
}

/** One call: who it is for and where. `netns` is absent when DEL came without one. */
export interface Attachment extends Owner {
  readonly containerId: ContainerId
  readonly netns?: NetnsPath
  /** CNI_ARGS, parsed; `IgnoreUnknown` included. */
  readonly args: ReadonlyMap<string, string>
  /** CNI_PATH, split. */
  readonly path: readonly string[]
}

/** What one attachment needs: `shared` outlives the container, `own` is removed with it. */
export interface Wiring {
  readonly shared: readonly Resource[]
  readonly own: readonly Resource[]
  readonly result: Result
  /** What chained plugins that work within this one's calls need, by their types; they are the attachment's own, too, and noted under those. */
  readonly noted?: readonly { readonly type: string; readonly own: readonly Resource[] }[]
  /** What `settle` makes when it is not there: CHECK wants it too. */
  readonly later?: readonly Resource[]
  /** Looks at what may have been there before (a bridge) as soon as the first links are made, and judges it when all of the node is: throws CniError, of code 7 where something is in the way. */
  readonly settle?: (now: Now) => () => Settled
}
/** What the kernel says of the node's links. */
export type Now = Pick<Run, 'seen' | 'held'>

/** What of the node's own settings decides how something is wired. */
export interface NodeFacts {
  /** Tells this machine from all others: MACs are made of it. Absent where there is no node. */
  readonly machineId?: string
  /** Bridged frames pass the firewall (sysctls net.bridge.bridge-nf-call-iptables and -ip6tables). */
  readonly bridgeNf: boolean
  /** The node's link towards an IPv4 address, by the main routing table. */
  readonly deviceTo?: (ip: Ip) => IfName | undefined
  /** Whether a chained plugin of this type has made something for an attachment. Absent where there is no node. */
  readonly noted?: (type: string, owner: Owner) => boolean
  /** The sysctls that tuning may set, one expression per line of the node's list; absent: all of them. Throws CniError 7 for a line that is none. */
  readonly sysctlsAllowed?: readonly RegExp[] | undefined
  /** What is there already, of what a chained plugin's `look` asks for; absent where nobody looked: then nothing is known, and nothing has to be put back. */
  readonly before?: readonly Resource[]
  /** What the kernel says of a link of a namespace; undefined when there is none. */
  readonly link?: (name: string, ns: Netns) => SeenLink | undefined
  /** The MAC of a bridge of the node that still takes its lowest port's; undefined when it was set, and when there is no such bridge. */
  readonly floatingMac?: (bridge: IfName) => Mac | undefined
  /** Taps can be made: the node has /dev/net/tun. */
  readonly hasTun?: boolean
  /** firewalld runs, and judges packets by the zones of their sources. */
  readonly hasFirewalld?: boolean
  /** SELinux is on: programs, and what they make, have labels. */
  readonly hasSelinux?: boolean
  /** The link of a namespace's default route. */
  readonly defaultDevice?: (ns: Netns) => IfName | undefined
  /** The node's end of the veth that a pod's link is the other end of; null when it is none, or its other end is elsewhere; undefined when that cannot be seen. */
  readonly hostEnd?: (pod: Pick<Attachment, 'netns' | 'ifname'>) => { readonly name: IfName; readonly mtu: number } | null | undefined
}
/** `given` is what the pool returned (interface plugins) or prevResult (chained plugins). Pure. */
export type Wire<C> = (conf: C, at: Attachment, given: Result, node: NodeFacts) => Wiring

/** What a pool would answer, and a phrase on how far that holds: `free now`. */
export interface Foreseen {
  readonly result: Result
  readonly why: string
}

/** Addresses by owner. Every method but `foresee` holds the pool's lock while it works. */
export interface Pool {
  /** Throws for a configuration or a request that no state of the pool could satisfy; called before anything is made. */
  valid(): void
  /** Takes one address per range set for the owner. Throws CniError: 11 none free, 7 a wanted address cannot be had. */
  take(owner: Owner): Result
  /** What `take` would give the owner, for people: nothing is locked, taken or written, and a pool that cannot be read gives an example. `isFreed`: once what it holds is released. Throws as `take`. Absent: it cannot be told beforehand. */
  foresee?(owner: Owner, isFreed?: boolean): Foreseen
  /** Frees what the owner holds; nothing held is success. */
  release(owner: Owner): void
  holds(owner: Owner): boolean
  /** For a pool that keeps nothing: throws CniError when `previous`, the result of ADD, is not what it gives. CHECK asks this in place of `holds`. */
  check?(previous: Result): void
  /** Frees what belongs to none of these owners of the network (GC). */
  keepOnly(owners: readonly Owner[]): void
  /** Throws CniError 50 when nothing can be given out. */
  ready(): void
}

/** A plugin: one file, its default export. The standard verbs come from its role (lib/verbs). */
export type Plugin<C extends NetConf = NetConf> = InterfacePlugin<C> | ChainedPlugin<C> | IpamPlugin<C> | LeasePlugin<C> | DelegatingPlugin<C> | MetaPlugin<C> | CustomPlugin<C>

interface Described<C> {
  /** One line for people who start it by hand. */
  readonly about: string
  readonly conf: Shape<C>
  /** The CNI_ARGS keys it knows. Absent: it does not look at CNI_ARGS at all. */
  readonly args?: readonly string[]
  /** The argv of what makes the wiring of a configuration on the node, besides the first links: ADD starts it while it does other work. */
  readonly tools?: (conf: C) => readonly (readonly string[])[]
}

/** A chained plugin that is to work within another's calls, the key that asks for it, and the configuration that it would have in a list. */
export interface Within {
  readonly type: string
  readonly key: string
  readonly conf: Readonly<Record<string, unknown>>
}
/** Makes the container's link. */
export interface InterfacePlugin<C extends NetConf> extends Described<C> {
  readonly role: 'interface'
  readonly wire: Wire<C>
  /** The chained plugins that the configuration wants in the same calls. For DEL `conf` holds only what could be read. */
  readonly within?: (conf: Partial<C>) => readonly Within[]
  /** The links of the wiring that need no address: they are made while the pool works. */
  readonly links?: (conf: C, at: Attachment, node: NodeFacts) => readonly Resource[]
  /** The link stands in the pod, with nothing of it on the node: where is noted before it is made, and only what has the owner's alias is removed there. */
  readonly inPod?: true
  /** Links among `shared` that go with the last attachment that needs them (lib/verbs/shared-links.ts). */
  readonly holders?: (conf: C) => readonly IfName[]
  /** The link is a device of the node, which is moved: what it was like is noted before, and `unwire` reads that. */
  readonly lends?: true
  /** What `own` comes down to when nothing but the owner is known: dropping it drops everything that ADD made for the attachment. */
  readonly unwire: (owner: Owner & Pick<Attachment, 'netns'>) => readonly Resource[]
  /** Removes what a reference plugin made for the same attachment. Called when nothing of ours was there; must succeed when there is nothing. */
  readonly unwireForeign?: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /** What of the reference plugin's own rules is missing for an attachment that it made, one phrase each: CHECK asks this in place of looking for plumb's. Changes nothing. */
  readonly checkForeign?: (conf: C, at: Attachment, given: Result, run: Run) => Promise<readonly string[]>
  /** Removes what reference plugins made for attachments whose link is gone (GC). */
  readonly unwireLost?: (run: Run) => Promise<void>
  /** Throws CniError 50 or 51 when an ADD could not work, or would work less than fully (CNI spec 1.1.0 STATUS). */
  readonly status?: (conf: C, run: Run) => Promise<void>
  /** Removes what the network's attachments share, once none is left (GC with an empty list). */
  readonly unshare?: (conf: C, run: Run) => Promise<void>
}

/** How a chained plugin works within the calls of an interface plugin. */
export interface Fused {
  /** The key of the interface plugin that holds its settings, or `true`. */
  readonly key: string
  /** Its place among the others, from 1 on: that of the lists in use. */
  readonly place: number
  /** The capability that it takes. */
  readonly capability?: string
  /** A value of the capability alone asks for it, without the key. */
  readonly asks?: true
  /** The key may hold the capability's value, which is a list. */
  readonly isList?: true
  /** It gets `args`, too. */
  readonly args?: true
}

/** Adds to what the plugins before it made. `wire` gets prevResult; the result it answers with is usually the same. */
export interface ChainedPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'chained'
  /** Its name, under which the journal has what it made. */
  readonly type: string
  /** How it works within the calls of an interface plugin; absent: it does not. In one line: `npm run tables` reads it there. */
  readonly fused?: Fused
  readonly wire: Wire<C>
  /** What of the pod as it is `wire` has to know, which gets it as `node.before`: ADD and CHECK ask, ADD while no other plugin that looks is at work in the pod. `noted` is what an earlier ADD noted for the same pod. Starts no process, changes nothing. */
  readonly look?: (conf: C, at: Attachment, given: Result, noted: readonly Resource[]) => readonly Resource[]
  /** Why what it makes cannot be told before the link is there, for explain. */
  readonly isBlind?: string
  /** Throws ValueError for what only the configuration's text shows: a key that stands twice. `key`: the one in which its settings stand, within another plugin's. */
  readonly judge?: (text: string, key?: string) => void
  /** What a person should be told of a configuration that works, but otherwise than it says. */
  readonly notes?: (conf: C) => readonly string[]
  /** As of an interface plugin; called when there is no record of the attachment. */
  readonly unwireForeign?: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /** What of the reference plugin's own things is missing for an attachment that it made, one phrase each; CHECK asks this where nothing is noted of the attachment and plumb's own are not there. Changes nothing. */
  readonly checkForeign?: (conf: C, at: Attachment, given: Result, run: Run) => Promise<readonly string[]>
  readonly status?: (conf: C, run: Run) => Promise<void>
  readonly unshare?: (conf: C, run: Run) => Promise<void>
}

/** Gives out addresses. */
export interface IpamPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'ipam'
  /** For DEL `conf` holds only what could be read. */
  readonly pool: (conf: Partial<C>, at: Attachment) => Pool
}

/** Gives out addresses that it gets through the container's own link: that link is made before it is asked, and goes after it has given them back. `args` is CNI_ARGS as it came. */
export interface LeasePlugin<C extends NetConf> extends Described<C> {
  readonly role: 'lease'
  /** Throws for what no server could satisfy; called before anything is made. */
  readonly valid: (conf: C, args: string) => void
  readonly add: (conf: C, at: Attachment, args: string) => Promise<Result>
  readonly check: (conf: C, at: Attachment) => Promise<void>
  /** Nothing held is success. `conf` holds only what could be read. */
  readonly del: (conf: Partial<C>, at: Attachment) => Promise<void>
  /** Gives back what belongs to none of these owners of the network. */
  readonly gc: (conf: C, keep: readonly Owner[]) => Promise<void>
  /** Throws CniError 50 when nothing can be got. */
  readonly status: (conf: C) => Promise<void>
}

/** Another interface plugin under keys of its own: every verb is that one's (CNI spec 1.1.0 section 4, in this process). So is the pool that its translation names, whatever CNI_PATH holds: it has no key by which a user could name another. */
export interface DelegatingPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'delegating'
  /** The type of the plugin that does the work. */
  readonly to: string
  /** The configuration for it; the keys that every plugin has are added as they came. For DEL `conf` holds only what could be read. */
  readonly translate: (conf: Partial<C>) => Readonly<Record<string, unknown>>
}

/** A configuration for another plugin, but for `name` and `cniVersion`, which are the network's. */
export interface Rendered {
  readonly type: string
  readonly [key: string]: unknown
}
/** Has an interface plugin of any type do the work, in this process or as another program. What it asks of it on ADD is kept, and asked again on DEL and CHECK. */
export interface MetaPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'meta'
  /** The folder in which what ADD asked is kept. */
  readonly dataDir: (conf: Partial<C>) => string
  /** What the other plugin is asked, ADD and STATUS. Throws ValueError or CniError when that cannot be said now. */
  readonly render: (conf: C, command: 'ADD' | 'STATUS') => Promise<Rendered>
  /** As much of that as can be said without waiting and out of what can be read: for GC, and for a DEL that finds nothing kept. */
  readonly outline: (conf: Partial<C>) => Rendered
}

/** Anything else: each verb written by hand. DEL gets what could be read of the configuration. */
export interface CustomPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'custom'
  readonly add: (conf: C, at: Attachment, run: Run) => Promise<Result>
  readonly check: (conf: C, at: Attachment, run: Run) => Promise<void>
  readonly del: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /** What ADD or DEL would run and ADD answer, for people. Pure. Absent: it cannot be told beforehand. */
  readonly foretell?: (command: 'ADD' | 'DEL', conf: Partial<C>, at: Attachment) => Foretold
}
/** What the verb of a custom plugin comes to when all goes as it should. */
export interface Foretold {
  readonly scripts: readonly Script[]
  readonly result?: Result
}
/** One process: its namespace, its argv, and its input line by line, each with a phrase on what it is for. */
export interface Script {
  readonly ns: Netns
  readonly argv: readonly string[]
  readonly lines: readonly { readonly text: string; readonly about: string }[]
}

/** A plugin file's default export; names the type of its configuration. */
export function definePlugin<C extends NetConf>(plugin: Plugin<C>): Plugin {
  return plugin as unknown as Plugin
}
