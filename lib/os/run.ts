import type { Ip } from '../text/ip.ts'
import type { NetnsPath } from '../text/values.ts'
import type { LinkAddress } from './link-addresses.ts'
import type { SeenLink } from './links.ts'
/** The result of one child process. `status` is the exit status. After a signal it is 128 plus the signal's number. */
export interface Output {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * Runs external programs. All code calls programs through this interface. `argv[0]` is a name that is searched in fixed
 * directories. `stdin` is the standard input, `ns` the namespace. Throws ExecError when the program cannot be started,
 * and CniError 11 when it takes too long.
 */
export interface Run {
  (argv: readonly string[], stdin: string, ns?: 'host' | NetnsPath): Promise<Output>
  /**
   * Starts a program before its input is known. Its start then runs beside other work. A prepared program that gets no
   * input does nothing.
   */
  prepare?(argv: readonly string[], ns?: 'host' | NetnsPath): void
  /** Gives a program its input and returns at once. A later call with the same arguments waits for its end. */
  feed?(argv: readonly string[], stdin: string, ns?: 'host' | NetnsPath): void
  /**
   * Waits until the kernel reports a link of the node as running. Returns false when `limitMs` passes first. Absent
   * without a kernel.
   */
  running?(name: string, limitMs: number): boolean
  /**
   * Waits until the bridge of a port lets it forward. Returns false when `limitMs` passes first. Absent without a
   * kernel.
   */
  forwards?(port: string, limitMs: number): boolean
  /** Tells the neighbours of a link which MAC address has these addresses (announcement.ts). Absent without a kernel. */
  announce?(link: string, addresses: readonly Ip[], ns: 'host' | NetnsPath): void
  /** The same of all addresses of the link. Its arp_notify and ndisc_notify are on. Absent without a kernel. */
  announceByKernel?(link: string, ns: 'host' | NetnsPath): void
  /** Whether a namespace has a link of this name. True when the kernel refuses to answer. Absent without a kernel. */
  link?(name: string, ns: 'host' | NetnsPath): boolean
  // These throw NoAnswer when the kernel does not answer.
  /** The kernel's facts about a link of a namespace. Undefined when there is no such link. Absent without a kernel. */
  seen?(name: string, ns: 'host' | NetnsPath): SeenLink | undefined
  /** The addresses of a link of the node, by its index, of one family or both. Absent without a kernel. */
  held?(index: number, family?: 4 | 6): readonly LinkAddress[]
  /**
   * `rules` gives the number of rules of each chain in plumb's nft table on the node. `uses` gives the number of uses
   * of each chain. Uses are the chain's rules and the jumps to it. Absent without a kernel.
   */
  rules?(): ReadonlyMap<string, number>
  uses?(): ReadonlyMap<string, number>
  /** Whether the node has plumb's nft table. Absent without a kernel. */
  hasTable?(): boolean
  /** The names of the sets and maps in plumb's nft table. Absent without a kernel. */
  sets?(): readonly string[]
}
