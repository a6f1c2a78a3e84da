import { shown } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { both, isSame } from '../lease/families.ts'
import type { Both, Lease } from '../lease/lease.ts'
import type { NetworkConf } from '../lease/network-configuration.ts'
import type { Queue } from '../scheduler/queue.ts'
import { type Draft, OutOfSubnetsError, StoreError, type SubnetStore, SubnetTakenError } from './store.ts'

const [RETRY_MS, LONGEST_RETRY_MS] = [500, 30_000]
/**
 * The longest base of the pause after a store did not answer or refused. With its random part, a node is back within
 * five seconds.
 */
const LONGEST_AWAY_MS = 3600
/** A conflict over the lease counts as over after this time without a loss. Milliseconds. */
const CALM_MS = 2 * LONGEST_RETRY_MS

/**
 * Keeps this node's lease. Claims it in the background when the published data changes, before the lease ends, and when
 * the store has lost it. A store that does not answer delays no other work.
 */
export class Claiming {
  /** The lease from the last successful claim. */
  lease: Lease | undefined
  /** The error that ends the agent: another node owns the subnet or the node name. */
  fatal: SubnetTakenError | undefined
  /** Why the node has no lease yet, or why the store does not have the latest data yet. */
  problem: string | undefined
  readonly #store: SubnetStore
  readonly #conf: NetworkConf
  readonly #queue: Queue
  readonly #marginMs: number
  readonly #note: (text: string) => void
  #published = ''
  #seen: Lease | undefined
  #running = false
  #isAway = false
  #retryAt = 0
  #retryMs = RETRY_MS
  /** Time of the next renewal, by performance.now(). A wall clock that is set back does not delay the renewal. */
  #renewAt = Number.POSITIVE_INFINITY
  #others = Number.POSITIVE_INFINITY
  #losses = { count: 0, at: Number.NEGATIVE_INFINITY, text: '' }

  constructor(store: SubnetStore, conf: NetworkConf, queue: Queue, marginMs: number, note: (text: string) => void) {
    this.#store = store
    this.#conf = conf
    this.#queue = queue
    this.#marginMs = marginMs
    this.#note = note
  }

  /**
   * Takes the current leases of the store. Publishes this node's lease again when the store lacks it or has other data.
   * Without a lease, asks for a lease at once when the number of leases has decreased.
   */
  take(leases: readonly Lease[]): void {
    const { lease } = this
    // While a claim runs, the store may already have the new data.
    if (lease && !this.#running && this.#published !== '' && !this.#isAmong(lease, leases)) this.#lose(lease, leases)
    // A store that did not answer, or had nothing for this node, may have it by now.
    if (!lease && (leases.length < this.#others || this.#isAway)) this.#retryAt = 0
    this.#others = leases.length
  }

  /** Claims, renews or publishes the lease when that is due. `before` has the subnets of the previous run. */
  want(draft: Omit<Draft, 'before' | 'fixed'>, before: Both<Cidr> | undefined): void {
    if (this.#running) return
    const wanted = JSON.stringify([draft.ips, draft.data])
    const now = performance.now()
    if (this.lease && wanted === this.#published && now < this.#renewAt) {
      // Each call sets the trigger again. The one of an earlier claim comes too early, and no further one would follow.
      if (Number.isFinite(this.#renewAt)) this.#queue.add('renewal', this.#renewAt - now + 1)
      return
    }
    if (now < this.#retryAt) {
      this.#queue.add('claim', this.#retryAt - now + 1)
      return
    }
    const held = this.lease?.subnets ?? before
    const whole: Draft = { ...draft, ...(held && { before: held }), ...(this.lease && { fixed: true }) }
    this.#running = true
    void this.#claim(whole, wanted)
  }

  async #claim(draft: Draft, wanted: string): Promise<void> {
    try {
      this.lease = await this.#store.claim(draft, this.#conf, AbortSignal.timeout(LONGEST_RETRY_MS))
      this.#published = wanted
      this.problem = undefined
      this.#isAway = false
      this.#retryMs = RETRY_MS
      const { expires = Number.POSITIVE_INFINITY } = this.lease
      this.#renewAt = performance.now() + Math.max(1000, expires - this.#marginMs - Date.now())
      this.#queue.add('lease')
    } catch (cause) {
      if (cause instanceof SubnetTakenError) this.fatal = cause
      this.#isAway = cause instanceof StoreError
      const known = [SubnetTakenError, StoreError, OutOfSubnetsError].some((one) => cause instanceof one)
      this.problem = known ? (cause as Error).message : String(cause)
      const had = both(draft.before ?? {}).join(' ')
      const whose = `${shown(draft.node)}${had === '' ? '' : ` (${had})`}`
      this.#note(`Cannot claim a subnet for node ${whose}: ${this.problem}`)
      const pause = this.#retryMs * (0.75 + Math.random() / 2)
      this.#retryAt = performance.now() + pause
      this.#retryMs = Math.min(this.#isAway ? LONGEST_AWAY_MS : LONGEST_RETRY_MS, this.#retryMs * 2)
      this.#queue.add('claim', this.fatal ? 0 : pause + 1)
    } finally {
      this.#running = false
    }
  }

  /** A sentence about the repeated changes to this lease by another writer. Undefined when there are none. */
  get conflict(): string | undefined {
    const { count, at, text } = this.#losses
    return count > 1 && performance.now() - at < CALM_MS ? `${text}, ${count} times so far` : undefined
  }

  // After the first loss, the node publishes at once. Later it waits, because two nodes that publish for ever keep
  // every node of the cluster busy.
  #lose(lease: Lease, leases: readonly Lease[]): void {
    this.#published = ''
    const now = performance.now()
    const count = now - this.#losses.at < CALM_MS ? this.#losses.count + 1 : 1
    const rival = leases.find((one) => isSame(one.subnets, lease.subnets))
    const what = `The lease of ${both(lease.subnets).join(' ')} is`
    const by = rival && `the node at ${both(rival.ips).join(' ')}: does it have this node's name, too?`
    this.#losses = { count, at: now, text: by ? `${what} overwritten by ${by}` : `${what} removed from the store` }
    if (count > 1)
      this.#retryAt = Math.max(this.#retryAt, now + Math.min(LONGEST_RETRY_MS, RETRY_MS * 2 ** (count - 2)))
  }

  #isAmong(lease: Lease, leases: readonly Lease[]): boolean {
    const isOwn = (one: Lease) => isSame(one.subnets, lease.subnets) && publishedIn(one) === publishedIn(lease)
    // Most snapshots contain the same object as the snapshot before.
    if (this.#seen && isOwn(this.#seen) && leases.includes(this.#seen)) return true
    this.#seen = leases.find(isOwn)
    return this.#seen !== undefined
  }
}

function publishedIn({ ips, backend, data }: Lease): string {
  return JSON.stringify([ips.v4, ips.v6, backend, data.v4, data.v6])
}
