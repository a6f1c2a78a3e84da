import { shown } from '../lib/errors.ts'
import type { Cidr } from '../lib/ip.ts'
import { both, isSame } from './both.ts'
import type { Both, Lease } from './lease.ts'
import type { NetworkConf } from './netconf.ts'
import { type Draft, OutOfSubnetsError, StoreError, type SubnetStore, SubnetTakenError } from './store.ts'
import type { Wakes } from './wakes.ts'

const [RETRY_MS, LONGEST_RETRY_MS] = [500, 30_000]

/** This node's lease: claimed beside the loop, again whenever what is published changes, in time before it ends, and when it is not in the store any more. A store that does not answer keeps nothing else from being done. */
export class Claiming {
  /** As it was last given. */
  lease: Lease | undefined
  /** What ends the agent: its subnet belongs to another. */
  fatal: SubnetTakenError | undefined
  /** Why it is still without one, or without what is to be published. */
  problem: string | undefined
  readonly #store: SubnetStore
  readonly #conf: NetworkConf
  readonly #wakes: Wakes
  readonly #marginMs: number
  readonly #note: (text: string) => void
  #published = ''
  #seen: Lease | undefined
  #running = false
  #retryAt = 0
  #retryMs = RETRY_MS
  #others = Number.POSITIVE_INFINITY

  constructor(store: SubnetStore, conf: NetworkConf, wakes: Wakes, marginMs: number, note: (text: string) => void) {
    this.#store = store
    this.#conf = conf
    this.#wakes = wakes
    this.#marginMs = marginMs
    this.#note = note
  }

  /** Takes in the leases that the store has: its own is published again when it is not among them as it was, and one that could not be had is asked for at once when some are gone. */
  take(leases: readonly Lease[]): void {
    const { lease } = this
    if (lease && !this.#isAmong(lease, leases)) this.#published = ''
    if (!lease && leases.length < this.#others) this.#retryAt = 0
    this.#others = leases.length
  }

  /** Sees to it that the store has this; `before` is what the node had in an earlier life. */
  want(draft: Omit<Draft, 'before' | 'fixed'>, before: Both<Cidr> | undefined): void {
    const wanted = JSON.stringify([draft.ips, draft.data])
    const { expires } = this.lease ?? {}
    const isDue = expires !== undefined && expires - this.#marginMs <= Date.now()
    if (this.#running || (this.lease && wanted === this.#published && !isDue) || performance.now() < this.#retryAt) return
    const held = this.lease?.subnets ?? before
    this.#running = true
    void this.#claim({ ...draft, ...(held ? { before: held } : {}), ...(this.lease ? { fixed: true as const } : {}) }, wanted)
  }

  async #claim(draft: Draft, wanted: string): Promise<void> {
    try {
      this.lease = await this.#store.claim(draft, this.#conf, AbortSignal.timeout(LONGEST_RETRY_MS))
      this.#published = wanted
      this.problem = undefined
      this.#retryMs = RETRY_MS
      const { expires } = this.lease
      if (expires !== undefined) this.#wakes.poke('renewal', Math.max(1000, expires - this.#marginMs - Date.now()))
      this.#wakes.poke('lease')
    } catch (cause) {
      if (cause instanceof SubnetTakenError) this.fatal = cause
      const known = [SubnetTakenError, StoreError, OutOfSubnetsError].some((one) => cause instanceof one)
      this.problem = known ? (cause as Error).message : String(cause)
      this.#note(`Cannot claim a subnet for node ${shown(draft.node)}${draft.before ? ` (${both(draft.before).join(' ')})` : ''}: ${this.problem}`)
      const pause = this.#retryMs * (0.75 + Math.random() / 2)
      this.#retryAt = performance.now() + pause
      this.#retryMs = Math.min(LONGEST_RETRY_MS, this.#retryMs * 2)
      this.#wakes.poke('claim', this.fatal ? 0 : pause + 1)
    } finally {
      this.#running = false
    }
  }

  #isAmong(lease: Lease, leases: readonly Lease[]): boolean {
    const isOwn = (one: Lease) => isSame(one.subnets, lease.subnets) && saidIn(one) === saidIn(lease)
    // Most snapshots have the very object of the one before.
    if (this.#seen && isOwn(this.#seen) && leases.includes(this.#seen)) return true
    this.#seen = leases.find(isOwn)
    return this.#seen !== undefined
  }
}

function saidIn({ ips, backend, data }: Lease): string {
  return JSON.stringify([ips.v4, ips.v6, backend, data.v4, data.v6])
}
