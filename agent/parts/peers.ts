import type { Wanted } from '../backend/backend.ts'
import { blackholes } from '../backend/blackhole.ts'
import { type WithMtus, withPathMtus } from '../backend/path-mtu.ts'
import { newlyUnreached, scoped, summary, type Unreached } from '../backend/unreached.ts'
import { withoutBird } from '../bgp/handover.ts'
import { face } from '../kernel/diff.ts'
import { both, isSame } from '../lease/families.ts'
import { encodeKey, type Lease } from '../lease/lease.ts'
import { giveBack } from '../node/garbage.ts'
import { type Outcome, WAITING } from '../scheduler/part.ts'
import { every } from '../scheduler/pause.ts'
import type { NodeState } from '../state/condition.ts'
import type { PeerObjects } from '../state/details.ts'
import { wordsOf } from '../state/peer-objects.ts'
import { BasePart } from './base.ts'
import type { KernelInputs, NetworkInputs, Reports } from './inputs.ts'

/** How often the kernel is asked for routes of BIRD, until it has them all. */
const BIRD_LOOK_MS = 500

/** What the part needs of the agent. */
export interface PeersPartOptions
  extends Pick<NetworkInputs, 'backend' | 'options' | 'facts' | 'blackhole'>,
    Pick<KernelInputs, 'converger' | 'run' | 'quietMs'>,
    Pick<Reports, 'log'> {
  /** Called when the set of unreachable peers, or a reason, may have changed. */
  changed(): void
  /** The MTUs of the routes to peers may have changed. */
  narrowed(): void
  /** Reports the reasons. */
  note(text: string, isNew: boolean): void
  /** Who writes the routes to nodes. */
  programs(): NonNullable<NodeState['programs']>
  /** Called when the kernel has what follows from `programs`. */
  programmed(): void
}

/** Keeps the objects that lead to the pods of other nodes: devices, routes, neighbours and tunnel entries. */
export class PeersPart extends BasePart<PeersPartOptions> {
  readonly name = 'peers'
  readonly trouble = 'Cannot program the peers'
  readonly quietMs = this.given.quietMs
  #problems: Unreached = new Map()
  #failed: Unreached = new Map()
  /** BIRD has written a route for each route of the agent. */
  #isHandedOver = false

  invalidate(): void {
    this.given.converger.invalidate()
  }

  /** Reads again, until the signal, what the backend says that no event tells of. */
  watch(signal: AbortSignal): void {
    const { backend, converger } = this.given
    const { relist } = backend
    const look = () => {
      converger.invalidate(...(relist?.kinds ?? []))
      this.queue.add('relist')
    }
    if (relist) every(relist.everyMs, look, signal)
  }

  async step(why: readonly string[]): Promise<Outcome> {
    const { backend, options, converger, facts, log, blackhole } = this.given
    const { served: lease, choice, snapshot } = this.now
    if (!lease || !choice || !snapshot) return WAITING
    const { uplink } = choice
    const programs = this.given.programs()
    // What BIRD writes, the agent neither writes nor removes.
    const leases = programs === 'bird' ? await this.#untaken(snapshot.leases) : snapshot.leases
    this.#isHandedOver = programs === 'bird' && leases.length === 0
    const begun = performance.now()
    const { resources, problems, ownersOf, mtus } = this.#withPaths(
      backend.want(lease, leases, uplink, options, facts),
      leases,
    )
    converger.hold(this.repairs.held())
    const done = await converger.step(blackhole ? [...blackholes(lease.subnets), ...resources] : resources)
    giveBack(done.changed)
    const { peers: failed, others } = scoped(done, ownersOf)
    this.#reportUnreached(problems, failed, leases)
    this.#reportMtus(mtus)
    for (const [kind, what] of Object.entries(done.repaired)) this.repairs.note(this, kind, what)
    const counts = Object.entries(done.counts).map(([kind, count]) => {
      return [kind, { ...count, repaired: this.repairs.count(kind) }] as const
    })
    this.now.kinds = { ...this.now.kinds, ...Object.fromEntries(counts) }
    if (done.changed > 0) {
      const peers = leases.filter((one) => !isSame(one.subnets, lease.subnets)).length
      const what = `${peers - this.now.unreached.size} peers by ${backend.type} on ${uplink.name}`
      const took = `${Math.round(performance.now() - begun)}ms`
      log(`agent: programmed ${what} changed=${done.changed} took=${took} why=${why.join(',')}`)
    }
    if (others.length === 0 && programs !== this.now.programs) {
      this.now.programs = programs
      this.given.programmed()
    }
    return { failures: others, isIncomplete: failed.size > 0 }
  }

  /**
   * The objects that lead to the pods of a peer, wanted and found. `key` is the key of its lease. Undefined for an unknown
   * peer, and before the first step. Throws ExecError.
   */
  async objects(key: string): Promise<PeerObjects | undefined> {
    const { backend, options, converger, facts } = this.given
    const { served: lease, choice, snapshot } = this.now
    const peer = snapshot?.leases.find((one) => encodeKey(one.subnets) === key)
    if (!lease || !choice || !snapshot || !peer || isSame(peer.subnets, lease.subnets)) return undefined
    if (this.given.programs() === 'bird') return { objects: [] }
    const wanted = backend.want(lease, snapshot.leases, choice.uplink, options, facts)
    const { resources, ownersOf } = this.#withPaths(wanted, snapshot.leases)
    const keys = new Map(resources.map((one) => [face(one).key, one]))
    const own = [...ownersOf(new Set(keys.keys()))].filter(([, owner]) => owner === key)
    const looked = await converger.look(own.flatMap(([one]) => keys.get(one) ?? []))
    return { objects: looked.map(wordsOf) }
  }

  // The peers whose route the agent keeps, because BIRD has not written its own yet. BIRD has it at once, later, or never.
  async #untaken(leases: readonly Lease[]): Promise<readonly Lease[]> {
    if (this.#isHandedOver) return []
    const dsts = await withoutBird(this.given.run)
    const left = leases.filter(({ subnets }) => both(subnets).some((subnet) => dsts.has(subnet)))
    if (left.length > 0) this.queue.add('waits for BIRD', BIRD_LOOK_MS)
    return left
  }

  #withPaths(wanted: Wanted, leases: readonly Lease[]): WithMtus {
    return withPathMtus(wanted, leases, this.now.pathMtus ?? new Map(), this.now.mtu)
  }

  // The status names the MTUs of routes.
  #reportMtus(mtus: WithMtus['mtus']): void {
    if (mtus.size === 0 && !this.now.routeMtus?.size) return
    this.now.routeMtus = mtus
    this.given.changed()
    this.given.narrowed()
  }

  // Reports unreachable peers by reason. Each is reported once, as long as the reason stays the same.
  #reportUnreached(problems: Unreached, failed: Unreached, leases: readonly Lease[]): void {
    if (problems === this.#problems && failed.size === 0 && this.#failed.size === 0) return
    const unreached = failed.size === 0 ? problems : new Map([...problems, ...failed])
    for (const text of summary(newlyUnreached(unreached, this.now.unreached), leases)) this.given.note(text, true)
    this.#problems = problems
    this.#failed = failed
    this.now.unreached = unreached
    this.now.lost = summary(unreached, leases)
    this.given.changed()
  }
}
