// This folder has the parts of the agent. Each part keeps one thing in its wanted state, with a queue and steps of its
// own (`scheduler/part.ts`). The parts share data only through `NodeState`. Begin with the class `Parts` in this file.
// The order is uplink, lease, files. Then all others work in parallel. Installation follows when they are done.

import { isSame } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import type { Part } from '../scheduler/part.ts'
import { makeQueue } from '../scheduler/queue.ts'
import { Scheduler } from '../scheduler/scheduler.ts'
import { initialState, type NodeState, withStep } from '../state/condition.ts'
import { type Snapshot, SubnetTakenError } from '../store/store.ts'
import { BgpPart, type BgpPartOptions } from './bgp.ts'
import { keepBridgedFrames } from './bridged-frames.ts'
import { CommandsPart } from './commands.ts'
import type { Context } from './context.ts'
import { DataPathPart } from './data-path.ts'
import { FilesPart } from './files.ts'
import { ForwardPart, TablePart } from './firewall.ts'
import { InstallationPart } from './installation.ts'
import { LeasePart } from './lease.ts'
import { LeftTablesPart } from './left-tables.ts'
import { NodeReport } from './node-report.ts'
import { PeersPart, type PeersPartOptions } from './peers.ts'
import { PluginRulesPart } from './plugin-rules.ts'
import { PolicyPart } from './policy.ts'
import { answerPolicy } from './policy-socket.ts'
import { Probing } from './probing.ts'
import { Repairs } from './repairs.ts'
import { ServicesPart } from './services.ts'
import { TunnelsPart } from './tunnels.ts'
import { UplinkPart } from './uplink.ts'

/** The interval of the probing ticks, in milliseconds. Each tick asks the next peers whether they answer. */
const PROBE_MS = 1000
/** When a change in the folders of plugins and networks is looked at, in milliseconds. `plumb uninstall` is done by then. */
const REINSTALL_MS = 3000

/** All parts of one run of the agent, with their shared state. */
export class Parts {
  readonly uplink: UplinkPart
  readonly lease: LeasePart
  readonly files: FilesPart
  readonly table: TablePart
  readonly forward: ForwardPart
  readonly tunnels: TunnelsPart
  readonly pluginRules: PluginRulesPart
  readonly #leftTables: LeftTablesPart
  readonly peers: PeersPart
  readonly dataPath: DataPathPart
  readonly policy: PolicyPart | undefined
  readonly services: ServicesPart | undefined
  readonly bgp: BgpPart | undefined
  readonly #commands: CommandsPart | undefined
  readonly #installation: InstallationPart
  /** What all parts together say of the node. */
  readonly report: NodeReport
  readonly #context: Context
  readonly #now: NodeState
  readonly #repairs: Repairs
  readonly #probing: Probing | undefined
  readonly #scheduler: Scheduler

  constructor(context: Context, signal: AbortSignal) {
    const { stale, probes, log } = context
    const now: NodeState = {
      ...initialState(),
      ...(stale && { lease: stale.lease, snapshot: { leases: stale.leases, unreadable: [] }, stale: stale.at }),
    }
    const repairs = new Repairs(now, log)
    const queue = () => makeQueue(signal)
    this.#context = context
    this.#now = now
    this.#repairs = repairs
    this.report = new NodeReport(context, now, repairs, this)
    this.uplink = new UplinkPart(context, now, queue(), () => this.#uplinkLooked())
    this.lease = new LeasePart(context, now, queue(), {
      changed: () => this.files.queue.add('lease'),
      note: (text) => this.report.note(text),
    })
    this.files = new FilesPart(context, now, queue(), repairs, (lease) => this.#serve(lease))
    this.table = new TablePart(context, now, queue(), repairs)
    this.forward = new ForwardPart(context, now, queue(), repairs)
    const others = () => this.bgp?.nodes ?? []
    this.tunnels = new TunnelsPart({ ...context, ...context.firewall.tunnels, others }, now, queue(), repairs)
    this.pluginRules = new PluginRulesPart(queue(), repairs)
    this.#leftTables = new LeftTablesPart(context, queue())
    const ofPeers: PeersPartOptions = {
      ...context,
      programs: () => this.bgp?.programs ?? 'agent',
      programmed: () => this.bgp?.queue.add('programs'),
      changed: () => this.#probing?.aimAnew(),
      note: (text, isNew) => this.report.note(text, isNew),
    }
    this.peers = new PeersPart(ofPeers, now, queue(), repairs)
    const tables = [context.firewall.table, context.firewall.tunnels.table]
    this.dataPath = new DataPathPart({ ...context, tables }, now, queue(), repairs)
    const { objects, isPolicyOn, services } = context
    this.policy = objects && isPolicyOn ? new PolicyPart(context, objects, now, queue(), repairs) : undefined
    this.services =
      objects &&
      services &&
      new ServicesPart(
        { ...context, objects, settings: services, networks: context.facts.networks },
        now,
        queue(),
        repairs,
      )
    const { backend, options, bgp } = context
    this.bgp = bgp && new BgpPart(this.#bgpOptions(bgp), now, queue())
    const commands = backend.commands?.of(options)
    this.#commands = commands && new CommandsPart(context, commands, now, queue(), signal)
    this.#installation = new InstallationPart(now, queue(), () => this.#scheduler.isComplete(this.#installation), {
      work: async () => {
        await context.synced()
        this.dataPath.queue.add('networks')
      },
      keep: async () => {
        const missing = await context.reinstall(repairs.held())
        if (missing.length === 0) return
        repairs.note(
          this.#installation,
          'file',
          missing.map((path) => ({ key: path, title: path })),
        )
        this.dataPath.queue.add('networks')
      },
    })
    const listener = {
      note: (text: string) => this.report.note(text, true),
      silenced: () => this.report.judge(),
      changed: () => this.report.publish(),
      narrowed: () => this.peers.queue.add('path MTU'),
    }
    this.#probing = probes && new Probing({ ...context, probes, ...listener }, now)
    const before = [this.uplink, this.lease, this.files]
    const parallel = [
      this.table,
      this.forward,
      this.tunnels,
      this.pluginRules,
      this.#leftTables,
      this.peers,
      this.dataPath,
      ...this.#optional(),
    ]
    const all = [...before, ...parallel, this.#installation]
    this.#scheduler = new Scheduler(all, {
      failures: context.failures,
      failed: (text, isNew) => this.report.note(text, isNew),
      isFatal: (cause) => cause instanceof SubnetTakenError,
      stepped: (part, seconds) => {
        now.steps = withStep(now.steps, seconds)
        if (!now.isSynced && part !== this.#installation) this.#installation.queue.add('parts')
        this.report.judge()
        this.report.publish()
      },
    })
  }

  /**
   * Works until the signal. After a fatal error (SubnetTakenError), `end` ends the signal. All parts finish their
   * steps, and then the error is thrown.
   */
  async run(signal: AbortSignal, end: () => void): Promise<void> {
    const probing = this.#probing && setInterval(() => this.#probing?.tick(), PROBE_MS)
    const relisting = this.#relist()
    this.#scheduler.resync('start')
    const questions = this.policy && (await answerPolicy(this.#context.policySocket, this.policy, this.services))
    const ended = new AbortController()
    const life = AbortSignal.any([signal, ended.signal])
    const { policy, services } = this
    const guarded = services ?? policy
    const isBridged = () => services !== undefined || policy?.isBridged() === true
    // A part that waits for other settings is asked again at once.
    if (guarded) keepBridgedFrames(isBridged, (names) => this.#settingsRepaired(guarded, names), life)
    this.dataPath.watch(life, () => this.#installation.queue.add('networks', REINSTALL_MS))
    const strangers = this.tunnels.watch(life)
    const drops = this.policy?.drops.follow(life)
    const sessions = this.bgp?.follow(life)
    try {
      await this.#scheduler.run(this.#context.resyncMs, signal, end)
    } finally {
      clearInterval(probing)
      clearInterval(relisting)
      questions?.stop()
      this.services?.close()
      this.policy?.answers.stop()
      ended.abort()
      await strangers
      await drops
      await sessions
      this.#context.probes?.close()
    }
  }

  /**
   * Gives this node another key for its packets to other nodes, and returns the public one. Undefined when its backend
   * has no keys. Throws Error as the backend's `rotate`.
   */
  rotate(): string | undefined {
    const { backend, options } = this.#context
    const made = backend.rotate?.(options, this.#now.served)
    if (made !== undefined) this.#context.log(`agent: this node has a new key, with public key ${made}`)
    this.lease.queue.add('key')
    return made
  }

  #relist(): Timer | undefined {
    const { backend, converger } = this.#context
    const { relist } = backend
    if (!relist) return undefined
    return setInterval(() => {
      converger.invalidate(...relist.kinds)
      this.peers.queue.add('relist')
    }, relist.everyMs)
  }

  #settingsRepaired(part: Part, names: readonly string[]): void {
    const repaired = names.map((name) => ({ key: name, title: name }))
    this.#repairs.note(part, 'sysctl', repaired)
    part.queue.add('sysctl')
  }

  /** Makes every part check everything again. */
  resync(why: string): void {
    this.#scheduler.resync(why)
  }

  /** Takes the leases of all nodes from the store. */
  take(snapshot: Snapshot): void {
    this.lease.take(snapshot)
    this.#probing?.aimAnew()
    this.peers.queue.add('leases')
    this.tunnels.queue.add('leases')
    this.bgp?.queue.add('leases')
    this.#commands?.queue.add('leases')
  }

  /** The part that has been in one step for the longest time. */
  busy(): ReturnType<Scheduler['busy']> {
    return this.#scheduler.busy()
  }

  #bgpOptions({ file, dir }: NonNullable<Context['bgp']>): BgpPartOptions {
    const { backend, options, facts } = this.#context
    return {
      ...this.#context,
      path: file,
      dir,
      networks: facts.networks,
      backendType: backend.type,
      byBird: backend.byBird?.(options),
      services: this.services,
      objects: this.#context.objects,
      changed: () => this.report.publish(),
      programsChanged: () => this.peers.queue.add('programs'),
      nodesChanged: () => this.tunnels.queue.add('BGP'),
    }
  }

  // Triggers these parts even when the choice stays the same. A link that was down and is up again has lost its routes.
  #uplinkLooked(): void {
    for (const part of [this.lease, this.files, this.tunnels, this.peers, this.services, this.bgp])
      part?.queue.add('uplink')
  }

  #serve(lease: Lease): void {
    const before = this.#now.served
    this.#now.served = lease
    if (before && isSame(before.subnets, lease.subnets)) {
      if (JSON.stringify(before.data) !== JSON.stringify(lease.data)) this.peers.queue.add('lease')
      return
    }
    this.#probing?.aimAnew()
    for (const part of [this.table, this.forward, this.tunnels, this.peers, this.dataPath, ...this.#optional()])
      part.queue.add('lease')
  }

  #optional(): Part[] {
    return [this.policy, this.services, this.bgp, this.#commands].filter((one) => one !== undefined)
  }
}
