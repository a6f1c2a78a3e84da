import type { Commands } from '../backend/backend.ts'
import { called } from '../backend/peers.ts'
import { isSame } from '../lease/families.ts'
import { encodeKey, encodeValue, type Lease, type SubnetKey } from '../lease/lease.ts'
import { inputOf, readAdded, variablesOf, writeAdded } from '../node/added-peers.ts'
import { runCommand } from '../node/command.ts'
import type { Failure } from '../scheduler/failures.ts'
import { type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'
import type { Context } from './context.ts'

/** A step removes and adds peers for this time each, in milliseconds. Then the next step goes on. */
const STEP_MS = 5000
/** How long a failed command rests, in milliseconds. The time doubles with each failure. */
const [REST_MS, LONGEST_REST_MS] = [1000, 60_000]
/** The number of failures that are reported at once. */
const NAMED = 5
/** Characters of a command's output in the log. */
const LOGGED = 1000

type Name = keyof Commands
interface Resting {
  readonly until: number
  readonly ms: number
  readonly text: string
}

/**
 * Runs the commands of the backend `extension`: one when the node has its subnet, one for each peer that comes, and one
 * for each that goes. A file has the peers, so that those that go while the agent is away are not forgotten.
 */
export class CommandsPart implements Part {
  readonly name = 'commands'
  readonly trouble = 'Cannot run the commands of the backend'
  readonly quietMs: number
  readonly queue: Queue
  readonly #context: Context
  readonly #commands: Commands
  readonly #now: NodeState
  readonly #signal: AbortSignal
  /** The peers in the file. A command has been run for them, or may have been. */
  readonly #noted: Map<SubnetKey, Lease>
  /** The content of each peer for which SubnetAddCommand has succeeded in this run. */
  readonly #added = new Map<SubnetKey, string>()
  /** The commands that failed, by name and content. */
  readonly #resting = new Map<string, Resting>()
  #started: string | undefined

  constructor(context: Context, commands: Commands, now: NodeState, queue: Queue, signal: AbortSignal) {
    this.#context = context
    this.#commands = commands
    this.#now = now
    this.queue = queue
    this.quietMs = context.quietMs
    this.#signal = signal
    this.#noted = new Map(readAdded(context.addedPeers).peers.map((one) => [encodeKey(one.subnets), one]))
  }

  async step(): Promise<Outcome> {
    const { served: lease, choice, snapshot } = this.#now
    if (!lease || !choice || !snapshot) return WAITING
    if (!(await this.#start(lease))) return { failures: this.#failures('node', /^PostStartup/) }
    const { backend, options, facts } = this.#context
    const { problems } = backend.want(lease, snapshot.leases, choice.uplink, options, facts)
    const peers = snapshot.leases.filter(({ subnets }) => !isSame(subnets, lease.subnets))
    const wanted = new Map(peers.map((one) => [encodeKey(one.subnets), one]))
    for (const key of problems.keys()) wanted.delete(key)
    // Each has a time of its own. Otherwise peers that cannot be removed would hold up those that come.
    const isAllRemoved = await this.#removeGone(wanted, this.#until(STEP_MS))
    const isAllAdded = await this.#addNew(wanted, this.#until(STEP_MS))
    if (!isAllRemoved || !isAllAdded) this.queue.add('peers')
    this.#forget(wanted)
    return { failures: this.#failures('part', /^Subnet/) }
  }

  #until(ms: number): () => boolean {
    const end = performance.now() + ms
    return () => this.#signal.aborted || performance.now() > end
  }

  // Runs PostStartupCommand, once for each subnet of this node. Gives false when it failed.
  async #start(lease: Lease): Promise<boolean> {
    const content = encodeContent(lease)
    if (this.#started === content) return true
    const { conf } = this.#context
    const more = { NETWORK: conf.v4?.network ?? '', ...variablesOf(lease) }
    if (!(await this.#run('PostStartupCommand', lease, more, ''))) return false
    this.#started = content
    return true
  }

  // A peer that announces something else is removed, too. It is added again afterwards. Gives false when some are left.
  async #removeGone(wanted: ReadonlyMap<SubnetKey, Lease>, isOver: () => boolean): Promise<boolean> {
    const before = this.#noted.size
    try {
      for (const [key, lease] of this.#noted) {
        const now = wanted.get(key)
        if (now && encodeContent(now) === encodeContent(lease)) continue
        if (isOver()) return false
        // A command that fails may have removed something. When the peer comes back, it is added again.
        this.#added.delete(key)
        if (!(await this.#run('SubnetRemoveCommand', lease, variablesOf(lease), inputOf(lease)))) continue
        this.#noted.delete(key)
      }
      return true
    } finally {
      if (this.#noted.size !== before) this.#write()
    }
  }

  async #addNew(wanted: ReadonlyMap<SubnetKey, Lease>, isOver: () => boolean): Promise<boolean> {
    const free = [...wanted].filter(([key, lease]) => {
      const noted = this.#noted.get(key)
      return noted === undefined || encodeContent(noted) === encodeContent(lease)
    })
    const left = free.filter(([key, lease]) => this.#added.get(key) !== encodeContent(lease))
    if (left.length === 0) return true
    // Noted before the commands run: a kill of the agent leaves no peer that nobody removes.
    for (const [key, lease] of left) this.#noted.set(key, lease)
    this.#write()
    for (const [key, lease] of left) {
      if (isOver()) return false
      if (await this.#run('SubnetAddCommand', lease, variablesOf(lease), inputOf(lease)))
        this.#added.set(key, encodeContent(lease))
    }
    return true
  }

  // A failure counts as long as its command is still to be run.
  #forget(wanted: ReadonlyMap<SubnetKey, Lease>): void {
    const adding = new Set([...wanted.values()].map(encodeContent))
    const removing = new Set([...this.#noted.values()].map(encodeContent).filter((one) => !adding.has(one)))
    for (const id of this.#resting.keys()) {
      const content = id.slice(id.indexOf(' ') + 1)
      if (!(id.startsWith('SubnetRemove') ? removing : adding).has(content)) this.#resting.delete(id)
    }
  }

  #write(): void {
    writeAdded(this.#context.addedPeers, {
      remove: this.#commands.SubnetRemoveCommand ?? '',
      peers: [...this.#noted.values()],
    })
  }

  // Gives false when the command failed, or still rests after a failure. Without such a command there is nothing to do.
  async #run(name: Name, lease: Lease, more: Readonly<Record<string, string>>, input: string): Promise<boolean> {
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
    this.#context.log(`agent: ran ${what} took=${took}ms${failed} output=${shownOutput(output)}`)
    if (failure === undefined) {
      this.#resting.delete(id)
      return true
    }
    const ms = Math.min(LONGEST_REST_MS, (before?.ms ?? REST_MS / 2) * 2)
    const text = `Cannot run ${what}: ${failure}; the log has what it wrote`
    this.#resting.set(id, { until: performance.now() + ms, ms, text })
    return false
  }

  #failures(scope: Failure['scope'], ids: RegExp): Failure[] {
    const some = [...this.#resting].filter(([id]) => ids.test(id))
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

function encodeContent(lease: Lease): string {
  return `${encodeKey(lease.subnets)} ${encodeValue(lease)}`
}
