// This folder has the parts of the agent. Each part keeps one thing in its wanted state, with a queue and steps of its
// own (`scheduler/part.ts`). The parts share data only through `NodeState`. Begin with the class `Parts` in this file.
// The order is uplink, lease, files. Then all others work in parallel. Installation follows when they are done.

import { isSame } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import type { Part } from '../scheduler/part.ts'
import { Scheduler } from '../scheduler/scheduler.ts'
import { initialState, withStep } from '../state/condition.ts'
import { type Snapshot, SubnetTakenError } from '../store/store.ts'
import type { Shared } from './base.ts'
import { keepBridgedFrames } from './bridged-frames.ts'
import type { Inputs } from './inputs.ts'
import { type Links, makeParts, type PartSet } from './make.ts'
import { NodeReport } from './node-report.ts'
import { answerPolicy } from './policy-socket.ts'
import { Probing } from './probing.ts'
import { Repairs } from './repairs.ts'
import { makeSampling } from './sampled.ts'

/** All parts of one run of the agent, with their shared state. */
export class Parts {
  readonly all: PartSet
  /** What all parts together say of the node. */
  readonly report: NodeReport
  readonly #inputs: Inputs
  readonly #shared: Shared
  readonly #probing: Probing | undefined
  readonly #scheduler: Scheduler

  constructor(inputs: Inputs, signal: AbortSignal) {
    const { self, network, leases, kernel, reports } = inputs
    const { probes } = network
    const now = initialState(leases.stale)
    const repairs = new Repairs(now, (text) => reports.log(text))
    const ofReport = { ...self, ...network, ...leases, ...kernel, ...reports }
    const report = new NodeReport(ofReport, now, repairs, () => this.all)
    const links: Links = {
      report,
      uplinkLooked: () => this.#uplinkLooked(),
      served: (lease) => this.#serve(lease),
      peersChanged: () => this.#probing?.aimAnew(),
      isTime: () => this.#scheduler.isComplete(this.all.installation),
    }
    this.report = report
    this.#inputs = inputs
    this.#shared = { now, repairs, signal }
    this.all = makeParts(inputs, this.#shared, links)
    const narrowed = () => this.all.peers.queue.add('path MTU')
    this.#probing = probes && new Probing({ ...network, ...kernel, ...reports, probes, narrowed }, now, report)
    const parts = Object.values(this.all).filter((one) => one !== undefined)
    this.#scheduler = new Scheduler(parts, {
      failures: reports.failures,
      failed: (text, isNew) => report.note(text, isNew),
      isFatal: (cause) => cause instanceof SubnetTakenError,
      stepped: (part, seconds) => this.#stepped(part, seconds),
    })
  }

  /**
   * Works until the signal. After a fatal error (SubnetTakenError), `end` ends the signal. All parts finish their
   * steps, and then the error is thrown.
   */
  async run(signal: AbortSignal, end: () => void): Promise<void> {
    const { network, kernel, cluster } = this.#inputs
    const ended = new AbortController()
    this.#scheduler.resync('start')
    const questions = await answerPolicy(cluster.policy?.socket, this.all)
    const following = this.#follow(AbortSignal.any([signal, ended.signal]))
    try {
      await this.#scheduler.run(kernel.resyncMs, signal, end)
    } finally {
      questions?.stop()
      this.all.services?.close()
      this.all.policy?.answers.stop()
      ended.abort()
      await following
      network.probes?.close()
    }
  }

  // What triggers parts besides the events, until the signal.
  async #follow(life: AbortSignal): Promise<void> {
    const { tunnels, peers, dataPath, forward, fastPath, policy, services, bgp, installation } = this.all
    this.#probing?.follow(life)
    fastPath.count(life)
    peers.watch(life)
    forward.watch(life)
    const guarded = services ?? policy
    const isBridged = () => services !== undefined || policy?.isBridged() === true
    if (guarded) keepBridgedFrames(guarded, isBridged, this.#shared.repairs, life)
    dataPath.watch(life, () => installation.foldersChanged())
    const sampling = this.#inputs.network.probes && makeSampling(this.all, this.#inputs.reports, this.report)
    await Promise.all([tunnels.watch(life), policy?.drops.follow(life), bgp?.follow(life), sampling?.follow(life)])
  }

  /**
   * Gives this node another key for its packets to other nodes, and returns the public one. Undefined when its backend
   * has no keys. Throws Error as the backend's `rotate`.
   */
  rotate(): string | undefined {
    const { network, reports } = this.#inputs
    const made = network.backend.rotate?.(network.options, this.#shared.now.served)
    if (made !== undefined) reports.log(`agent: this node has a new key, with public key ${made}`)
    this.all.lease.queue.add('key')
    return made
  }

  /** Makes every part check everything again. */
  resync(why: string): void {
    this.#scheduler.resync(why)
  }

  /** Takes the leases of all nodes from the store. */
  take(snapshot: Snapshot): void {
    const { lease, peers, tunnels, bgp, commands } = this.all
    lease.take(snapshot)
    this.#probing?.aimAnew()
    for (const part of [peers, tunnels, bgp, commands]) part?.queue.add('leases')
  }

  /** The part that has been in one step for the longest time. */
  busy(): ReturnType<Scheduler['busy']> {
    return this.#scheduler.busy()
  }

  #stepped(part: Part, seconds: number): void {
    const { installation } = this.all
    const { now } = this.#shared
    now.steps = withStep(now.steps, seconds)
    if (!now.isSynced && part !== installation) installation.queue.add('parts')
    this.report.judge()
    this.report.publish()
  }

  // Triggers these parts even when the choice stays the same. A link that was down and is up again has lost its routes.
  #uplinkLooked(): void {
    const { lease, files, tunnels, peers, fastPath, services, bgp } = this.all
    for (const part of [lease, files, tunnels, peers, fastPath, services, bgp]) part?.queue.add('uplink')
  }

  #serve(lease: Lease): void {
    const { table, forward, tunnels, peers, dataPath, fastPath, policy, services, bgp, commands } = this.all
    const { now } = this.#shared
    const before = now.served
    now.served = lease
    if (before && isSame(before.subnets, lease.subnets)) {
      if (JSON.stringify(before.data) !== JSON.stringify(lease.data)) peers.queue.add('lease')
      return
    }
    this.#probing?.aimAnew()
    for (const part of [table, forward, tunnels, peers, dataPath, fastPath, policy, services, bgp, commands])
      part?.queue.add('lease')
  }
}
