import { PathMtus } from '../backend/path-mtu.ts'
import type { Probes } from '../backend/probes.ts'
import { named, silenceOf } from '../backend/silent-peers.ts'
import { both, isSame } from '../lease/families.ts'
import { encodeKey, type Lease, type SubnetKey } from '../lease/lease.ts'
import { every } from '../scheduler/pause.ts'
import { isTraced, noteSpan } from '../scheduler/spans.ts'
import type { NodeState } from '../state/condition.ts'
import type { KernelInputs, NetworkInputs, Reports } from './inputs.ts'
import type { NodeReport } from './node-report.ts'

/** The interval of the ticks, in milliseconds. Each tick asks the next peers whether they answer. */
const TICK_MS = 1000
/** The number of ticks between updates of the round trips for followers of the status. */
const PUBLISHED_EVERY = 10

/** What probing needs of the agent. */
export interface ProbingOptions
  extends Pick<NetworkInputs, 'backend' | 'options'>,
    Pick<KernelInputs, 'converger'>,
    Pick<Reports, 'log'> {
  readonly probes: Probes
  /** The MTU of the path to a peer has changed. */
  narrowed(): void
}

/** Asks peers over the overlay whether they answer. */
export class Probing {
  readonly #options: ProbingOptions
  readonly #now: NodeState
  readonly #report: Pick<NodeReport, 'note' | 'judge' | 'publish'>
  readonly #silent = new Set<SubnetKey>()
  readonly #narrow = new Set<SubnetKey>()
  readonly #mtus = new PathMtus()
  #isAimed = false
  /** The size of probes that are as large as pods' packets. */
  #mtu = 0
  #ticks = 0

  constructor(options: ProbingOptions, now: NodeState, report: Pick<NodeReport, 'note' | 'judge' | 'publish'>) {
    this.#options = options
    this.#now = now
    this.#report = report
    now.probe = options.probes.of
    now.probeTimes = options.probes.times
  }

  /** The peers, or the set of unreachable peers, may have changed. The next tick selects the targets again. */
  aimAnew(): void {
    this.#isAimed = false
  }

  /** Probes the peers that are due, until the signal. */
  follow(signal: AbortSignal): void {
    every(TICK_MS, () => this.#tick(), signal)
  }

  #tick(): void {
    if (!this.#isAimed || this.#mtu !== this.#now.mtu) this.#aim()
    const begun = performance.now()
    const { silent, narrow, back, sent } = this.#options.probes.tick(performance.now())
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
    for (const text of wrong) this.#report.note(text, true)
    if (back.length > 0) this.#options.log(`agent: answering again: ${this.#named(back)}`)
    const isOther = silent.length + narrow.length + back.length > 0
    if (isTraced() && (isOther || sent > 0))
      noteSpan(
        'probe',
        { 'plumb.probes': sent },
        performance.now() - begun,
        wrong.length > 0 ? wrong.join('; ') : undefined,
      )
    this.#noteMtus()
    if (isOther) this.#reportSilent()
    if (isOther) this.#report.judge()
    // Round trips alone do not cause a report at each tick.
    if (isOther || ++this.#ticks % PUBLISHED_EVERY === 0) this.#report.publish()
  }

  // Leaves out unreachable peers, because they have no routes and cannot answer.
  #aim(): void {
    const { served, snapshot, unreached, mtu } = this.#now
    if (!served || !snapshot) return
    const { backend, options } = this.#options
    this.#isAimed = true
    this.#mtu = mtu
    const from = backend.answersAt(served, options)
    const aims = snapshot.leases.flatMap((peer) => {
      const key = encodeKey(peer.subnets)
      if (isSame(peer.subnets, served.subnets) || unreached.has(key)) return []
      const { v4, v6 } = backend.answersAt(peer, options)
      const to = { ...(v4 && from.v4 && { v4 }), ...(v6 && from.v6 && { v6 }) }
      return to.v4 || to.v6 ? [{ key, from, to, mtu }] : []
    })
    this.#options.probes.aim(aims)
    this.#mtus.keepOnly(new Set(snapshot.leases.map(({ subnets }) => encodeKey(subnets))))
    const stateOf = (key: SubnetKey) => this.#options.probes.of(key)?.state
    for (const key of this.#silent) if (stateOf(key) !== 'silent') this.#silent.delete(key)
    for (const key of this.#narrow) if (stateOf(key) !== 'narrow') this.#narrow.delete(key)
    this.#reportSilent()
  }

  #noteMtus(): void {
    const { probes, log } = this.#options
    const before = this.#mtus.all
    const changed = [...new Set([...this.#narrow, ...before.keys()])].filter((key) =>
      this.#mtus.note(key, probes.paths(key)),
    )
    if (changed.length === 0) return
    const { all } = this.#mtus
    this.#now.pathMtus = all
    for (const key of changed) {
      const mtu = all.get(key)
      const what = mtu
        ? `packets of ${both(mtu).join(', ')} bytes arrive, larger ones do not`
        : 'packets of full size arrive again'
      log(`agent: ${what} at ${this.#named([key])}`)
    }
    this.#options.narrowed()
  }

  #reportSilent(): void {
    const { backend, options, converger } = this.#options
    const handshakes = converger.handshakes()
    const whyOf = backend.whySilent && ((peer: Lease) => backend.whySilent?.(peer, handshakes, options))
    const { snapshot, mtu, routeMtus } = this.#now
    // The fault of a node that Kubernetes has no news of either is there, not here.
    const away = new Set(snapshot?.leases.flatMap(({ isAway, subnets }) => (isAway ? [encodeKey(subnets)] : [])))
    const peers = { silent: this.#silent.difference(away), narrow: this.#narrow, routed: new Set(routeMtus?.keys()) }
    this.#now.silent = silenceOf(peers, snapshot?.leases ?? [], mtu, whyOf)
  }

  #named(keys: readonly SubnetKey[]): string {
    return named(keys, this.#now.snapshot?.leases ?? [])
  }
}
