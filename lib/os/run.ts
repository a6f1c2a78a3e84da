import type { NetnsPath } from '../text/values.ts'
import type { Held } from './link-addresses.ts'
import type { SeenLink } from './links.ts'
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
  /** Whether a namespace has a link of this name; true where the kernel would not say. Absent where there is no kernel. */
  link?(name: string, ns: 'host' | NetnsPath): boolean
  /** What the kernel says of a link of a namespace, undefined when there is none. Absent where there is no kernel. */
  seen?(name: string, ns: 'host' | NetnsPath): SeenLink | undefined
  /** The addresses of a link of the node, by its index, of both families or one. Absent where there is no kernel. */
  held?(index: number, family?: 4 | 6): readonly Held[]
  /** How many rules each chain of our nft table has on the node, and how often it is in use: by those, and by what jumps to it. Absent where there is no kernel. */
  rules?(): ReadonlyMap<string, number>
  uses?(): ReadonlyMap<string, number>
  /** Whether the node has our nft table; true where the kernel would not say. Absent where there is no kernel. */
  hasTable?(): boolean
  /** The names of its sets and maps. Absent where there is no kernel. */
  sets?(): readonly string[]
}
