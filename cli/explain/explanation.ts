import type { Json } from '../../lib/runtime/network-list.ts'

/** One line that a tool would get, or one file that plumb would write itself. */
export interface ToldLine {
  readonly text: string
  /** What it is for. */
  readonly about: string
  /** The regular expression of the answer that means that it is so already; any other answer is a failure. */
  readonly already?: string
  /** Absent: always. */
  readonly when?: string
}
/** One process and its standard input, or, for the tool `file`, one run of file writes, whose argv is empty. */
export interface ToldRun {
  /** `host`, or the path of the pod's. */
  readonly namespace: string
  readonly tool: string
  readonly argv: readonly string[]
  /** Empty for a command whose argv says all. */
  readonly lines: readonly ToldLine[]
  readonly about?: string
  /** It goes on while the next ones run. */
  readonly beside?: true
  /** Absent: always. */
  readonly when?: string
}
/** The pool that an interface plugin would ask. */
export interface ToldPool {
  readonly type: string
  /** The program, when it is not plumb's. */
  readonly program?: string
  /** What it would answer, and how far that holds; absent when that is not known. */
  readonly result?: Json
  readonly about: string
}
/** What one plugin of a list would do. */
export interface ToldPlugin {
  readonly type: string
  readonly file: string
  readonly isPlumb: boolean
  readonly pool?: ToldPool
  readonly runs: readonly ToldRun[]
  /** Whether `runs` is all of it: false where more depends on what is not known. */
  readonly isWhole: boolean
  /** What ADD would answer; absent when that is not known, and for DEL. */
  readonly result?: Json
  /** What else a reader has to know. */
  readonly notes: readonly string[]
}
/** What ADD or DEL of one attachment would do: its plugins in the order in which they run. */
export interface Told {
  readonly command: 'ADD' | 'DEL'
  readonly network: string
  readonly containerId: string
  readonly ifname: string
  readonly netns: string
  readonly notes: readonly string[]
  readonly plugins: readonly ToldPlugin[]
  readonly result?: Json
}
