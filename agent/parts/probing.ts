import { called } from '../backend/peers.ts'
import type { Probes } from '../backend/probes.ts'
import type { Standing } from '../health/condition.ts'
import { isSame } from '../lease/families.ts'
import { encodeKey, type SubnetKey } from '../lease/lease.ts'
import type { Context } from './context.ts'

/** The number of silent peers that a message names. */
const NAMED = 3
/** The number of ticks between updates of the round trips for followers of the status. */
const TOLD_EVERY = 10

/** The receiver of results. */
interface Listener {
  note(text: string): void
  log(text: string): void
  /** The set of silent peers has changed. */
  silenced(): void
  /** Round trips may have changed. */
  changed(): void
}

/** Asks peers over the overlay whether they answer. */
export class Probing {
  readonly #probes: Probes
  readonly #backend: Context['backend']
  readonly #now: Standing
  readonly #listener: Listener
  readonly #silent = new Set<SubnetKey>()
  #isAimed = false
  #ticks = 0

  constructor(probes: Probes, backend: Context['backend'], now: Standing, listener: Listener) {
    this.#probes = probes
    this.#backend = backend
    this.#now = now
    this.#listener = listener
    now.probe = probes.of
  }

  /** The peers, or the set of unreachable peers, may have changed. The next tick selects the targets again. */
  aimAnew(): void {
    this.#isAimed = false
  }

  /** Probes the peers that are due. It must be called once a second. */
  tick(): void {
    if (!this.#isAimed) this.#aim()
    const { silent, back } = this.#probes.tick(performance.now())
    for (const key of silent) this.#silent.add(key)
    for (const key of back) this.#silent.delete(key)
    if (silent.length > 0) this.#listener.note(`no answer over the overlay from ${this.#named(silent)}`)
    if (back.length > 0) this.#listener.log(`agent: answering again: ${this.#named(back)}`)
    const isOther = silent.length + back.length > 0
    if (isOther) this.#tellSilent()
    if (isOther) this.#listener.silenced()
    // Round trips alone do not cause a report at each tick.
    if (isOther || ++this.#ticks % TOLD_EVERY === 0) this.#listener.changed()
  }

  // Leaves out unreachable peers, because they have no routes and cannot answer.
  #aim(): void {
    const { served, snapshot, unreached } = this.#now
    if (!served || !snapshot) return
    this.#isAimed = true
    const from = this.#backend.answersAt(served)
    const aims = snapshot.leases.flatMap((peer) => {
      const key = encodeKey(peer.subnets)
      if (isSame(peer.subnets, served.subnets) || unreached.has(key)) return []
      const { v4, v6 } = this.#backend.answersAt(peer)
      const to = { ...(v4 && from.v4 && { v4 }), ...(v6 && from.v6 && { v6 }) }
      return to.v4 || to.v6 ? [{ key, from, to }] : []
    })
    this.#probes.aim(aims)
    for (const key of this.#silent) if (this.#probes.of(key)?.state !== 'silent') this.#silent.delete(key)
    this.#tellSilent()
  }

  #tellSilent(): void {
    const { size } = this.#silent
    this.#now.silent = size === 0 ? [] : [`${size} ${size > 1 ? 'peers do' : 'peer does'} not answer over the overlay: ${this.#named([...this.#silent])}`]
  }

  #named(keys: readonly SubnetKey[]): string {
    const few = new Set(keys.slice(0, NAMED))
    const named = (this.#now.snapshot?.leases ?? []).filter(({ subnets }) => few.has(encodeKey(subnets))).map((lease) => called(lease))
    return `${named.join(', ')}${keys.length > NAMED ? ` and ${keys.length - NAMED} more` : ''}`
  }
}
