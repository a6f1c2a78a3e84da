import type { Commands } from '../backend/backend.ts'
import { BackendCommands, encodeContent } from '../backend/backend-commands.ts'
import { isSame } from '../lease/families.ts'
import { encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import { inputOf, readAdded, variablesOf, writeAdded } from '../node/added-peers.ts'
import { type Outcome, WAITING } from '../scheduler/part.ts'
import { BasePart, type Shared } from './base.ts'
import type { FileInputs, KernelInputs, NetworkInputs, Reports } from './inputs.ts'

/** A step removes and adds peers for this time each, in milliseconds. Then the next step goes on. */
const STEP_MS = 5000

/** What the part needs of the agent. */
export type CommandsPartOptions = Pick<NetworkInputs, 'backend' | 'options' | 'facts' | 'conf'> &
  Pick<FileInputs, 'addedPeers'> &
  Pick<KernelInputs, 'quietMs'> &
  Pick<Reports, 'log'> & { readonly commands: Commands }

/**
 * Runs the commands of the backend `extension`: one when the node has its subnet, one for each peer that comes, and one
 * for each that goes. A file has the peers, so that those that go while the agent is away are not forgotten.
 */
export class CommandsPart extends BasePart<CommandsPartOptions> {
  readonly name = 'commands'
  readonly trouble = 'Cannot run the commands of the backend'
  readonly quietMs = this.given.quietMs
  readonly #runner: BackendCommands
  readonly #signal: AbortSignal
  /** The peers in the file. A command has been run for them, or may have been. */
  readonly #noted: Map<SubnetKey, Lease>
  /** The content of each peer for which SubnetAddCommand has succeeded in this run. */
  readonly #added = new Map<SubnetKey, string>()
  #started: string | undefined

  constructor(given: CommandsPartOptions, shared: Shared) {
    super(given, shared)
    this.#runner = new BackendCommands(given.commands, given.log, shared.signal)
    this.#signal = shared.signal
    this.#noted = new Map(readAdded(given.addedPeers).peers.map((one) => [encodeKey(one.subnets), one]))
  }

  async step(): Promise<Outcome> {
    const { served: lease, choice, snapshot } = this.now
    if (!lease || !choice || !snapshot) return WAITING
    if (!(await this.#start(lease))) return { failures: this.#runner.failures('node', /^PostStartup/) }
    const { backend, options, facts } = this.given
    const { problems } = backend.want(lease, snapshot.leases, choice.uplink, options, facts)
    const peers = snapshot.leases.filter(({ subnets }) => !isSame(subnets, lease.subnets))
    const wanted = new Map(peers.map((one) => [encodeKey(one.subnets), one]))
    for (const key of problems.keys()) wanted.delete(key)
    // Each has a time of its own. Otherwise peers that cannot be removed would hold up those that come.
    const isAllRemoved = await this.#removeGone(wanted, this.#until(STEP_MS))
    const isAllAdded = await this.#addNew(wanted, this.#until(STEP_MS))
    if (!isAllRemoved || !isAllAdded) this.queue.add('peers')
    this.#forget(wanted)
    return { failures: this.#runner.failures('part', /^Subnet/) }
  }

  #until(ms: number): () => boolean {
    const end = performance.now() + ms
    return () => this.#signal.aborted || performance.now() > end
  }

  // Runs PostStartupCommand, once for each subnet of this node. Gives false when it failed.
  async #start(lease: Lease): Promise<boolean> {
    const content = encodeContent(lease)
    if (this.#started === content) return true
    const { conf } = this.given
    const more = { NETWORK: conf.v4?.network ?? '', ...variablesOf(lease) }
    if (!(await this.#runner.run('PostStartupCommand', lease, more, ''))) return false
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
        if (!(await this.#runner.run('SubnetRemoveCommand', lease, variablesOf(lease), inputOf(lease)))) continue
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
      if (await this.#runner.run('SubnetAddCommand', lease, variablesOf(lease), inputOf(lease)))
        this.#added.set(key, encodeContent(lease))
    }
    return true
  }

  // A failure counts as long as its command is still to be run.
  #forget(wanted: ReadonlyMap<SubnetKey, Lease>): void {
    const adding = new Set([...wanted.values()].map(encodeContent))
    const removing = new Set([...this.#noted.values()].map(encodeContent).filter((one) => !adding.has(one)))
    this.#runner.keep(adding, removing)
  }

  #write(): void {
    writeAdded(this.given.addedPeers, {
      remove: this.given.commands.SubnetRemoveCommand ?? '',
      peers: [...this.#noted.values()],
    })
  }
}
