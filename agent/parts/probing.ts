import { andMore } from '../../lib/text/listing.ts'
import { called } from '../backend/peers.ts'
import type { Probes } from '../backend/probes.ts'
import { isSame } from '../lease/families.ts'
import { encodeKey, type SubnetKey } from '../lease/lease.ts'
import { isTraced, noteSpan } from '../scheduler/spans.ts'
import type { NodeState } from '../state/condition.ts'
import type { Context } from './context.ts'

/** The number of silent peers that a message names. */
const NAMED = 3
/** The number of ticks between updates of the round trips for followers of the status. */
const PUBLISHED_EVERY = 10

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
  readonly #options: Context['options']
  readonly #converger: Context['converger']
  readonly #now: NodeState
  readonly #listener: Listener
  readonly #silent = new Set<SubnetKey>()
  readonly #narrow = new Set<SubnetKey>()
  #isAimed = false
  /** The size of probes that are as large as pods' packets. */
  #mtu = 0
  #ticks = 0

  constructor(probes: Probes, { backend, options, converger }: Context, now: NodeState, listener: Listener) {
    this.#probes = probes
    this.#backend = backend
    this.#options = options
    this.#converger = converger
    this.#now = now
    this.#listener = listener
    now.probe = probes.of
    now.probeTimes = probes.times
  }

  /** The peers, or the set of unreachable peers, may have changed. The next tick selects the targets again. */
  aimAnew(): void {
    this.#isAimed = false
  }

  /** Probes the peers that are due. It must be called once a second. */
  tick(): void {
    if (!this.#isAimed || this.#mtu !== this.#now.mtu) this.#aim()
    const begun = performance.now()
    const { silent, narrow, back, sent } = this.#probes.tick(performance.now())
    const move = (keys: readonly SubnetKey[], own?: Set<SubnetKey>) => {
      for (const key of keys) {
        for (const set of [this.#silent, this.#narrow]) set.delete(key)
        own?.add(key)
      }
    }
    move(silent, this.#silent)
    move(narrow, this.#narrow)
    move(back)
    const wrong: string[] = []
    if (silent.length > 0) wrong.push(`no answer over the overlay from ${this.#named(silent)}`)
    if (narrow.length > 0)
      wrong.push(`packets of full size (${this.#now.mtu} bytes) do not reach ${this.#named(narrow)}`)
    for (const text of wrong) this.#listener.note(text)
    if (back.length > 0) this.#listener.log(`agent: answering again: ${this.#named(back)}`)
    const isOther = silent.length + narrow.length + back.length > 0
    if (isTraced() && (isOther || sent > 0))
      noteSpan(
        'probe',
        { 'plumb.probes': sent },
        performance.now() - begun,
        wrong.length > 0 ? wrong.join('; ') : undefined,
      )
    if (isOther) this.#reportSilent()
    if (isOther) this.#listener.silenced()
    // Round trips alone do not cause a report at each tick.
    if (isOther || ++this.#ticks % PUBLISHED_EVERY === 0) this.#listener.changed()
  }

  // Leaves out unreachable peers, because they have no routes and cannot answer.
  #aim(): void {
    const { served, snapshot, unreached, mtu } = this.#now
    if (!served || !snapshot) return
    this.#isAimed = true
    this.#mtu = mtu
    const from = this.#backend.answersAt(served, this.#options)
    const aims = snapshot.leases.flatMap((peer) => {
      const key = encodeKey(peer.subnets)
      if (isSame(peer.subnets, served.subnets) || unreached.has(key)) return []
      const { v4, v6 } = this.#backend.answersAt(peer, this.#options)
      const to = { ...(v4 && from.v4 && { v4 }), ...(v6 && from.v6 && { v6 }) }
      return to.v4 || to.v6 ? [{ key, from, to, mtu }] : []
    })
    this.#probes.aim(aims)
    const stateOf = (key: SubnetKey) => this.#probes.of(key)?.state
    for (const key of this.#silent) if (stateOf(key) !== 'silent') this.#silent.delete(key)
    for (const key of this.#narrow) if (stateOf(key) !== 'narrow') this.#narrow.delete(key)
    this.#reportSilent()
  }

  #reportSilent(): void {
    const texts: string[] = []
    if (this.#silent.size > 0) {
      const count = this.#silent.size > 1 ? `${this.#silent.size} peers do` : `${this.#silent.size} peer does`
      texts.push(`${count} not answer over the overlay: ${this.#named([...this.#silent])}${this.#whySilent()}`)
    }
    if (this.#narrow.size > 0) {
      const count = this.#narrow.size > 1 ? `${this.#narrow.size} peers` : `${this.#narrow.size} peer`
      const what = `packets of full size (${this.#now.mtu} bytes) do not reach ${count}, small ones do`
      const why = 'a link between the nodes has a smaller MTU than the uplink'
      const fix = `raise that link's, or lower the uplink's (vxlan and wireguard: "MTU" of the backend)`
      texts.push(`${what}: ${this.#named([...this.#narrow])}; ${why}: ${fix}`)
    }
    this.#now.silent = texts
  }

  // The reasons that the backend knows, each with the peers that it is about.
  #whySilent(): string {
    const { snapshot } = this.#now
    const handshakes = this.#converger.handshakes()
    const reasons = new Map<string, SubnetKey[]>()
    for (const peer of this.#backend.whySilent ? (snapshot?.leases ?? []) : []) {
      const key = encodeKey(peer.subnets)
      const why = this.#silent.has(key) ? this.#backend.whySilent?.(peer, handshakes, this.#options) : undefined
      if (why !== undefined) reasons.set(why, [...(reasons.get(why) ?? []), key])
    }
    return [...reasons]
      .map(([why, keys]) => (keys.length === this.#silent.size ? `; ${why}` : `; ${this.#named(keys)}: ${why}`))
      .join('')
  }

  #named(keys: readonly SubnetKey[]): string {
    const few = new Set(keys.slice(0, NAMED))
    const named = (this.#now.snapshot?.leases ?? [])
      .filter(({ subnets }) => few.has(encodeKey(subnets)))
      .map((lease) => called(lease))
    return `${named.join(', ')}${andMore(keys.length - NAMED)}`
  }
}
