import { shown } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { both, isSame } from '../lease/families.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import type { Wakes } from '../scheduler/wakes.ts'
import { type Draft, OutOfSubnetsError, StoreError, type SubnetStore, SubnetTakenError } from './store.ts'

const [RETRY_MS, LONGEST_RETRY_MS] = [500, 30_000]
/** Whoever leaves the lease alone for so long contests it no more. */
const CALM_MS = 2 * LONGEST_RETRY_MS

/** This node's lease: claimed beside everything else, again whenever what is published changes, in time before it ends, and when it is not in the store any more. A store that does not answer keeps nothing else from being done. */
export class Claiming {
  /** As it was last given. */
  lease: Lease | undefined
  /** What ends the agent: its subnet, or its name, belongs to another. */
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
  #isAway = false
  #retryAt = 0
  #retryMs = RETRY_MS
  /** When the lease is to be renewed, by performance.now(): a clock that is set back delays nothing. */
  #renewAt = Number.POSITIVE_INFINITY
  #others = Number.POSITIVE_INFINITY
  #losses = { count: 0, at: Number.NEGATIVE_INFINITY, text: '' }

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
    // What is being published may be among them already.
    if (lease && !this.#running && this.#published !== '' && !this.#isAmong(lease, leases)) this.#lose(lease, leases)
    // A store that did not answer, or had nothing for this node, may have it by now.
    if (!lease && (leases.length < this.#others || this.#isAway)) this.#retryAt = 0
    this.#others = leases.length
  }

  /** Sees to it that the store has this; `before` is what the node had in an earlier life. */
  want(draft: Omit<Draft, 'before' | 'fixed'>, before: Both<Cidr> | undefined): void {
    if (this.#running) return
    const wanted = JSON.stringify([draft.ips, draft.data])
    const now = performance.now()
    if (this.lease && wanted === this.#published && now < this.#renewAt) {
      // Set anew each time: the wake of an earlier claim comes too early, and is the last one then.
      if (Number.isFinite(this.#renewAt)) this.#wakes.poke('renewal', this.#renewAt - now + 1)
      return
    }
    if (now < this.#retryAt) {
      this.#wakes.poke('claim', this.#retryAt - now + 1)
      return
    }
    const held = this.lease?.subnets ?? before
    this.#running = true
    void this.#claim({ ...draft, ...(held ? { before: held } : {}), ...(this.lease ? { fixed: true as const } : {}) }, wanted)
  }

  async #claim(draft: Draft, wanted: string): Promise<void> {
    try {
      this.lease = await this.#store.claim(draft, this.#conf, AbortSignal.timeout(LONGEST_RETRY_MS))
      this.#published = wanted
      this.problem = undefined
      this.#isAway = false
      this.#retryMs = RETRY_MS
      const { expires } = this.lease
      this.#renewAt = expires === undefined ? Number.POSITIVE_INFINITY : performance.now() + Math.max(1000, expires - this.#marginMs - Date.now())
      this.#wakes.poke('lease')
    } catch (cause) {
      if (cause instanceof SubnetTakenError) this.fatal = cause
      this.#isAway = cause instanceof StoreError
      const known = [SubnetTakenError, StoreError, OutOfSubnetsError].some((one) => cause instanceof one)
      this.problem = known ? (cause as Error).message : String(cause)
      const had = both(draft.before ?? {}).join(' ')
      this.#note(`Cannot claim a subnet for node ${shown(draft.node)}${had === '' ? '' : ` (${had})`}: ${this.problem}`)
      const pause = this.#retryMs * (0.75 + Math.random() / 2)
      this.#retryAt = performance.now() + pause
      this.#retryMs = Math.min(LONGEST_RETRY_MS, this.#retryMs * 2)
      this.#wakes.poke('claim', this.fatal ? 0 : pause + 1)
    } finally {
      this.#running = false
    }
  }

  /** Who changes the lease again and again, as a sentence; undefined when nobody does. */
  get contest(): string | undefined {
    const { count, at, text } = this.#losses
    return count > 1 && performance.now() - at < CALM_MS ? `${text}, ${count} times so far` : undefined
  }

  // The first time it is published again at once. Two nodes that do so for ever keep every node of the cluster busy.
  #lose(lease: Lease, leases: readonly Lease[]): void {
    this.#published = ''
    const now = performance.now()
    const count = now - this.#losses.at < CALM_MS ? this.#losses.count + 1 : 1
    const rival = leases.find((one) => isSame(one.subnets, lease.subnets))
    const whose = both(lease.subnets).join(' ')
    const text = rival ? `The lease of ${whose} is overwritten by the node at ${both(rival.ips).join(' ')}: does it have this node's name, too?` : `The lease of ${whose} is removed from the store`
    this.#losses = { count, at: now, text }
    if (count > 1) this.#retryAt = Math.max(this.#retryAt, now + Math.min(LONGEST_RETRY_MS, RETRY_MS * 2 ** (count - 2)))
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
