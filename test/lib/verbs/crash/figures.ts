/** What one walk came to. */
export interface Figures {
  /** The test file, which for most is the plugin's name. */
  readonly subject: string
  readonly verb: string
  /** Calls that change something. */
  readonly points: number
  /** Points times what followed. */
  readonly rounds: number
  /** Of those rounds: how many found the process alive, and killed it there. */
  readonly killed: number
  /** What was left, or did not work. */
  readonly faults: readonly string[]
  readonly ms: number
}
