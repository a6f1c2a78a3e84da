import { shown } from '../../lib/text/errors.ts'
import type { Uplink } from '../backend/uplink.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { Claiming } from '../store/claiming.ts'
import type { Snapshot } from '../store/store.ts'
import { BasePart, type Shared } from './base.ts'
import type { LeaseInputs, NetworkInputs, Reports, SelfInputs } from './inputs.ts'

/** The number of unreadable entries of the store that are logged one by one. */
const LOGGED = 20

/** What the part needs of the agent. */
export type LeasePartOptions = Pick<SelfInputs, 'node' | 'identity' | 'before'> &
  Pick<NetworkInputs, 'backend' | 'options' | 'facts' | 'conf'> &
  Pick<LeaseInputs, 'store' | 'renewMarginMs' | 'checkpoint'> &
  Pick<Reports, 'log'> & {
    /** Called when this node has a new, another or renewed lease. */
    readonly changed: () => void
    /** Reports a failure. */
    readonly note: (text: string) => void
  }

/** Keeps this node's lease in the store, and a copy of the store's data on disk. */
export class LeasePart extends BasePart<LeasePartOptions> {
  readonly name = 'lease'
  readonly trouble = 'Cannot announce this node'
  readonly quietMs = 0
  readonly #claiming: Claiming
  #strangers = new Set<string>()
  /** Whether the store has sent the leases. `#isConfirmed` says the same of the network configuration. */
  #hasLeases = false
  #isConfirmed = false

  constructor(given: LeasePartOptions, shared: Shared) {
    super(given, shared)
    this.#claiming = new Claiming(given.store, given.conf, this.queue, given.renewMarginMs, given.note)
  }

  /** The reason for a missing lease, or for a lease that is not as wanted. */
  get refusal(): string | undefined {
    return this.#claiming.problem
  }

  /** Takes the leases of all nodes from the store. */
  take(snapshot: Snapshot): void {
    this.now.snapshot = snapshot
    this.#hasLeases = true
    this.#reportUnreadable(snapshot)
    this.#claiming.take(snapshot.leases)
    this.queue.add('leases')
  }

  /** Notes that the store has the same network configuration as the copy on disk. */
  confirm(): void {
    this.#isConfirmed = true
    this.queue.add('configuration')
  }

  async step(): Promise<Outcome> {
    const { fatal } = this.#claiming
    if (fatal) throw fatal
    const { choice } = this.now
    if (choice) this.#claim(choice.uplink)
    this.#keep()
    const lease = this.#claiming.lease ?? this.now.lease
    const isOther = lease !== this.now.lease
    if (lease) this.now.lease = lease
    if (isOther) this.given.changed()
    const { conflict } = this.#claiming
    if (conflict !== undefined) return { failures: [{ scope: 'part', text: conflict }] }
    return lease && this.now.snapshot ? DONE : WAITING
  }

  #claim(uplink: Uplink): void {
    const { backend, node, identity, options, before, facts } = this.given
    const data = backend.announce(node, uplink, options, facts.existing)
    const draft = { node, ips: uplink.advertise, backend: backend.leaseType ?? backend.type, data }
    this.#claiming.want({ ...draft, ...(identity !== undefined && { identity }) }, before)
  }

  // Keeps the store's data on disk. The old copy from before the start counts until the store has sent everything.
  #keep(): void {
    const { lease } = this.#claiming
    const { snapshot, stale } = this.now
    if (!lease || !snapshot || !this.#hasLeases || (stale !== undefined && !this.#isConfirmed)) return
    if (stale !== undefined)
      this.given.log('agent: the store answers; the snapshot from before the start is no longer used')
    delete this.now.stale
    this.given.checkpoint({ lease, leases: snapshot.leases })
  }

  // Logs each unreadable entry once, as long as it does not change.
  #reportUnreadable({ unreadable }: Snapshot): void {
    const { log } = this.given
    const textOf = (key: string, why: string) => `agent: passed over ${shown(key)} in the store: ${why}`
    const now = new Map(unreadable.map(({ key, why }) => [`${key} ${why}`, textOf(key, why)]))
    const unseen = [...now].filter(([id]) => !this.#strangers.has(id))
    for (const [, text] of unseen.slice(0, LOGGED)) log(text)
    if (unseen.length > LOGGED) log(`agent: passed over ${unseen.length - LOGGED} more`)
    this.#strangers = new Set(now.keys())
  }
}
