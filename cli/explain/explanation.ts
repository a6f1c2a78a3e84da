import type { Json } from '../../lib/runtime/network-list.ts'

/** One line of input for a tool, or one file that plumb would write itself. */
export interface ExplainedLine {
  readonly text: string
  /** The purpose of the line. */
  readonly about: string
  /** A regular expression for the tool's message when the wanted state exists already. Any other error is a failure. */
  readonly already?: string
  /** The condition. Absent means always. */
  readonly when?: string
}
/**
 * One process and its standard input. For the tool `file` this is one series of file writes, for `kernel` what the plugin
 * itself asks and tells the kernel. `argv` is empty then.
 */
export interface ExplainedRun {
  /** `host`, or the path of the pod's namespace. */
  readonly namespace: string
  readonly tool: string
  readonly argv: readonly string[]
  /** Empty for a command that needs no input. */
  readonly lines: readonly ExplainedLine[]
  readonly about?: string
  /** The process works in parallel with the next processes. */
  readonly inBackground?: true
  /** The condition. Absent means always. */
  readonly when?: string
}
/** The address pool that an interface plugin would ask. */
export interface ExplainedPool {
  readonly type: string
  /** The path of the program, when the pool is not plumb's. */
  readonly program?: string
  /**
   * The answer that the pool would give. Absent when the answer is not known. `about` says how reliable the answer is.
   */
  readonly result?: Json
  readonly about: string
}
/** What one plugin of a list would do. */
export interface ExplainedPlugin {
  readonly type: string
  readonly file: string
  readonly isPlumb: boolean
  readonly pool?: ExplainedPool
  readonly runs: readonly ExplainedRun[]
  /** Whether `runs` is complete. False when more runs depend on facts that are not known. */
  readonly isWhole: boolean
  /** The answer of ADD. Absent when the answer is not known, and for DEL. */
  readonly result?: Json
  /** Further facts for the reader. */
  readonly notes: readonly string[]
}
/** What ADD or DEL of one attachment would do. The plugins are in the order in which they run. */
export interface Explanation {
  readonly command: 'ADD' | 'DEL'
  readonly network: string
  readonly containerId: string
  readonly ifname: string
  readonly netns: string
  readonly notes: readonly string[]
  readonly plugins: readonly ExplainedPlugin[]
  readonly result?: Json
}
