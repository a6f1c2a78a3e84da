import type { Result } from './result.ts'
import type { Shape } from './shape.ts'
import type { Link, Owner, Plan, Resource } from './state.ts'
import type { ContainerId, NetnsPath, NetworkName } from './values.ts'

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

/** The outcome of one child process. `status` is -1 when it was killed or ran into its time limit. */
export interface Output {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}
/** The one seam to programs: argv (argv[0] a name, found in fixed directories), standard input, and the namespace to run in. Throws ExecError when it cannot be started or is killed for taking too long. */
export interface Run {
  (argv: readonly string[], stdin: string, ns?: 'host' | NetnsPath): Promise<Output>
  /** Starts a program whose input will come: what it does before it reads goes on beside other work. One that is never run does nothing. */
  prepare?(argv: readonly string[], ns?: 'host' | NetnsPath): void
  /** Hands a program its input and goes on; the call with the same program, input and namespace then waits for its end. */
  feed?(argv: readonly string[], stdin: string, ns?: 'host' | NetnsPath): void
  /** Waits until the kernel calls a link of the node running; false when `limitMs` went by first. Absent where there is no kernel. */
  running?(name: string, limitMs: number): boolean
}

/** What one attachment needs: `shared` outlives the container, `own` is removed with it. */
export interface Wiring {
  readonly shared: readonly Resource[]
  readonly own: readonly Resource[]
  readonly result: Result
  /** What `settle` makes when it is not there: CHECK wants it too. */
  readonly later?: readonly Resource[]
  /** Judges what the batch showed of resources that may have been there before (a bridge): the final result and what else is to be put right, or throws CniError. */
  readonly settle?: (seen: readonly Seen[]) => { readonly result: Result; readonly plan?: Plan }
}
/** A row that a tool printed for a resource of the plan. */
export interface Seen {
  readonly resource: Resource
  readonly row: unknown
}

/** `given` is what the pool returned (interface plugins) or prevResult (chained plugins). Pure. */
export type Wire<C> = (conf: C, at: Attachment, given: Result) => Wiring

/** Addresses by owner. Every method holds the pool's lock while it works. */
export interface Pool {
  /** Throws for a configuration or a request that no state of the pool could satisfy; called before anything is made. */
  valid(): void
  /** Takes one address per range set for the owner. Throws CniError: 11 none free, 7 a wanted address cannot be had. */
  take(owner: Owner): Result
  /** Frees what the owner holds; nothing held is success. */
  release(owner: Owner): void
  holds(owner: Owner): boolean
  /** Frees what belongs to none of these owners of the network (GC). */
  keepOnly(owners: readonly Owner[]): void
  /** Throws CniError 50 when nothing can be given out. */
  ready(): void
}

/** A plugin: one file, its default export. The standard verbs come from its role (lib/verbs). */
export type Plugin<C extends NetConf = NetConf> = InterfacePlugin<C> | IpamPlugin<C> | CustomPlugin<C>

interface Described<C> {
  /** One line for people who start it by hand. */
  readonly about: string
  readonly conf: Shape<C>
  /** The CNI_ARGS keys it knows. Absent: it does not look at CNI_ARGS at all. */
  readonly args?: readonly string[]
}

/** Makes the container's link. */
export interface InterfacePlugin<C extends NetConf> extends Described<C> {
  readonly role: 'interface'
  readonly wire: Wire<C>
  /** The links of the wiring that stand on the node and need no address: they are made while the pool works. */
  readonly links?: (conf: C, at: Attachment) => readonly Link[]
  /** What `own` comes down to when nothing but the owner is known: dropping it drops everything that ADD made for the attachment. */
  readonly unwire: (owner: Owner) => readonly Resource[]
  /** Removes what a reference plugin made for the same attachment. Called when nothing of ours was there; must succeed when there is nothing. */
  readonly unwireForeign?: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
  /** Throws CniError 50 or 51 when an ADD could not work, or would work less than fully (CNI spec 1.1.0 STATUS). */
  readonly status?: (conf: C, run: Run) => Promise<void>
  /** Removes what the network's attachments share, once none is left (GC with an empty list). */
  readonly unshare?: (conf: C, run: Run) => Promise<void>
}

/** Gives out addresses. */
export interface IpamPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'ipam'
  /** For DEL `conf` holds only what could be read. */
  readonly pool: (conf: Partial<C>, at: Attachment) => Pool
}

/** Anything else: each verb written by hand. DEL gets what could be read of the configuration. */
export interface CustomPlugin<C extends NetConf> extends Described<C> {
  readonly role: 'custom'
  readonly add: (conf: C, at: Attachment, run: Run) => Promise<Result>
  readonly check: (conf: C, at: Attachment, run: Run) => Promise<void>
  readonly del: (conf: Partial<C>, at: Attachment, run: Run) => Promise<void>
}
