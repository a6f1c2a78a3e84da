// What a node is like at one moment. The doctor reads it once, and its checks compare it. Each fact is an exported
// `Fact` of a file in this folder, and `index.ts` is the list of them. `read.ts` reads all of them for the doctor.
// `of-agent.ts` has those that the agent knows without a process.
import type { Run } from '../../../lib/os/run.ts'
import type { ServiceView } from '../../services/view.ts'
import type { Status } from '../../state/status.ts'

/** One fact of a node, and how it is got. `T` is its value. */
export interface Fact<T> {
  /** Reads it for the doctor. Throws Error, or rejects, when it cannot be read. */
  read(reading: Reading): T | Promise<T>
  /** `read` waits for `others`, so that it has what is so when all other facts are read. */
  readonly isLast?: true
  /**
   * How the agent knows it. A function reads it without a process, when a check asks, and once a look. It throws Error.
   * `given`: a part of the agent has it (`of-agent.ts`). Else the agent does not read it, and no check with `inAgent` may.
   */
  readonly inAgent: ((of: KnownOf) => T) | 'given' | NotInAgent
}

/** What the agent does not read, such as `the routes`. */
export interface NotInAgent {
  readonly missing: string
}

/** Where the facts are read. */
export interface FactSources {
  readonly subnetFile: string
  readonly confDir: string
  readonly binDirs: readonly string[]
  /** Nobody named these two. A runtime may read other ones, as that of k3s does. */
  readonly isUsual: boolean
  /** The folders that the agent writes to. Those of plugins are known. */
  readonly written: readonly string[]
  /** Asks the agent for its status. Rejects when no agent answers, with the cause ENOENT or ECONNREFUSED when none runs. */
  status(): Promise<Status>
  /** Asks it for the Services that it serves. Null when it serves none. */
  services(): Promise<readonly ServiceView[] | null>
  /** Where the agent answers questions about policy. */
  readonly policySocket: string
}

/** What a fact is read with. */
export interface Reading {
  readonly run: Run
  readonly places: FactSources
  /** Gives another fact. Rejects with NotRead. */
  of<T>(fact: Fact<T>): Promise<T>
  /** Gives another fact, or undefined when it could not be read. */
  maybe<T>(fact: Fact<T>): Promise<T | undefined>
  /** Reads once what several facts are made of. */
  once<T>(read: () => T | Promise<T>): Promise<T>
  /** Resolves when all facts without `isLast` are read. */
  readonly others: Promise<void>
}

/** Gives another fact of the agent. Throws NotRead. */
export type KnownOf = <T>(fact: Fact<T>) => T

/** What the agent knows. */
export type AgentFacts = Pick<
  Status,
  'node' | 'network' | 'subnets' | 'backend' | 'mtu' | 'uplink' | 'services' | 'policy'
>

/** A fact could not be read. The message says why. */
export class NotRead extends Error {
  override name = 'NotRead'
}

/** Makes facts. `get` is called at each use of a fact. It throws NotRead for one that could not be read. */
export function factsOf<All extends object>(
  names: readonly (keyof All & string)[],
  get: (name: keyof All) => unknown,
): All {
  const properties = names.map((name) => [name, { get: () => get(name), enumerable: true }] as const)
  return Object.defineProperties({}, Object.fromEntries(properties)) as All
}

/** Reads a fact at its use. Throws NotRead when that fails. */
export function readNow<T>(read: () => T): T {
  try {
    return read()
  } catch (cause) {
    throw new NotRead((cause as Error).message, { cause })
  }
}
