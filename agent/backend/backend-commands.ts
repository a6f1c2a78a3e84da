import type { Lease } from '../lease/lease.ts'
import { encodeKey, encodeValue } from '../lease/lease.ts'
import { runCommand } from '../node/command.ts'
import type { Failure } from '../scheduler/failures.ts'
import type { Commands } from './backend.ts'
import { called } from './peers.ts'

/** How long a failed command rests, in milliseconds. The time doubles with each failure. */
const [REST_MS, LONGEST_REST_MS] = [1000, 60_000]
/** The number of failures that are reported at once. */
const NAMED = 5
/** Characters of a command's output in the log. */
const LOGGED = 1000

interface Resting {
  readonly until: number
  readonly ms: number
  readonly text: string
}

/** The commands of the backend `extension`, and those among them that failed and rest. */
export class BackendCommands {
  readonly #commands: Commands
  readonly #log: (text: string) => void
  readonly #signal: AbortSignal
  /** The commands that failed, by name and content. */
  readonly #resting = new Map<string, Resting>()

  constructor(commands: Commands, log: (text: string) => void, signal: AbortSignal) {
    this.#commands = commands
    this.#log = log
    this.#signal = signal
  }

  /**
   * Runs a command for a lease. Gives false when it failed, or still rests after a failure. Without such a command there
   * is nothing to do.
   */
  async run(
    name: keyof Commands,
    lease: Lease,
    more: Readonly<Record<string, string>>,
    input: string,
  ): Promise<boolean> {
    const command = this.#commands[name]
    if (command === undefined) return true
    const id = `${name} ${encodeContent(lease)}`
    const before = this.#resting.get(id)
    if (before && performance.now() < before.until) return false
    const begun = performance.now()
    const { output, failure } = await runCommand(command, more, input, { signal: this.#signal })
    const took = Math.round(performance.now() - begun)
    const what = `${name} for ${called(lease)}`
    const failed = failure === undefined ? '' : ` failed=${JSON.stringify(failure)}`
    this.#log(`agent: ran ${what} took=${took}ms${failed} output=${shownOutput(output)}`)
    if (failure === undefined) {
      this.#resting.delete(id)
      return true
    }
    const ms = Math.min(LONGEST_REST_MS, (before?.ms ?? REST_MS / 2) * 2)
    const text = `Cannot run ${what}: ${failure}; the log has what it wrote`
    this.#resting.set(id, { until: performance.now() + ms, ms, text })
    return false
  }

  /** Forgets failures of commands that are no longer to be run. The sets have the contents of the leases. */
  keep(adding: ReadonlySet<string>, removing: ReadonlySet<string>): void {
    for (const id of this.#resting.keys()) {
      const content = id.slice(id.indexOf(' ') + 1)
      if (!(id.startsWith('SubnetRemove') ? removing : adding).has(content)) this.#resting.delete(id)
    }
  }

  /** The failures of the commands with these names. */
  failures(scope: Failure['scope'], names: RegExp): Failure[] {
    const some = [...this.#resting].filter(([id]) => names.test(id))
    const all = some.map(([, { text }]) => ({ scope, text }))
    if (all.length <= NAMED) return all
    const rest = `Cannot run ${all.length - NAMED} more commands of the backend; the log has them`
    return [...all.slice(0, NAMED), { scope, text: rest }]
  }
}

/** The output of a command for the log, on one line. */
export function shownOutput(output: string): string {
  return JSON.stringify(output.length > LOGGED ? `${output.slice(0, LOGGED)}…` : output)
}

/** The content of a lease. Another one is another peer. */
export function encodeContent(lease: Lease): string {
  return `${encodeKey(lease.subnets)} ${encodeValue(lease)}`
}
