// This folder has the parts of the agent. Each part keeps one thing in its wanted state, with wakes and steps of its
// own (`scheduler/part.ts`). The parts share data only through `Standing`. Begin with the class `Parts` in this file.
// The order is uplink, lease, files. Then table, forward, rules of plugins, peers, policy and services work in
// parallel. Installation follows when all are done.
import { beginning, conditionOf, type Standing, tell, withStep } from '../health/condition.ts'
import type { Status } from '../health/status.ts'
import { isSame } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import { commands, listen } from '../node/answers.ts'
import { openSocket } from '../node/socket.ts'
import { admissionCommands } from '../policy/admission.ts'
import { policyCommands } from '../policy/questions.ts'
import type { Part } from '../scheduler/part.ts'
import { Scheduler } from '../scheduler/scheduler.ts'
import { makeWakes } from '../scheduler/wakes.ts'
import { type Snapshot, SubnetTakenError } from '../store/store.ts'
import { keepBridgedFrames } from './bridged-frames.ts'
import type { Context } from './context.ts'
import { DataPathPart } from './data-path.ts'
import { FilesPart } from './files.ts'
import { ForwardPart, TablePart } from './firewall.ts'
import { InstallationPart } from './installation.ts'
import { LeasePart } from './lease.ts'
import { PeersPart } from './peers.ts'
import { PluginRulesPart } from './plugin-rules.ts'
import { PolicyPart } from './policy.ts'
import { Probing } from './probing.ts'
import { Repairs } from './repairs.ts'
import { ServicesPart } from './services.ts'
import { UplinkPart } from './uplink.ts'

/** The interval of the probing ticks, in milliseconds. Each tick asks the next peers whether they answer. */
const PROBE_MS = 1000

/** All parts of one run of the agent, with their shared state. */
export class Parts {
  readonly uplink: UplinkPart
  readonly lease: LeasePart
  readonly files: FilesPart
  readonly table: TablePart
  readonly forward: ForwardPart
  readonly pluginRules: PluginRulesPart
  readonly peers: PeersPart
  readonly dataPath: DataPathPart
  readonly policy: PolicyPart | undefined
  readonly services: ServicesPart | undefined
  readonly #installation: InstallationPart
  readonly #context: Context
  readonly #now: Standing
  readonly #repairs: Repairs
  readonly #probing: Probing | undefined
  readonly #scheduler: Scheduler

  constructor(context: Context, signal: AbortSignal) {
    const { stale, probes, log } = context
    const now: Standing = {
      ...beginning(),
      ...(stale && { lease: stale.lease, snapshot: { leases: stale.leases, unreadable: [] }, stale: stale.at }),
    }
    const repairs = new Repairs(now, log)
    const wakes = () => makeWakes(signal)
    this.#context = context
    this.#now = now
    this.#repairs = repairs
    this.uplink = new UplinkPart(context, now, wakes(), () => this.#uplinkLooked())
    this.lease = new LeasePart(context, now, wakes(), {
      changed: () => this.files.wakes.poke('lease'),
      note: (text) => this.note(text),
    })
    this.files = new FilesPart(context, now, wakes(), repairs, (lease) => this.#serve(lease))
    this.table = new TablePart(context, now, wakes(), repairs)
    this.forward = new ForwardPart(context, now, wakes(), repairs)
    this.pluginRules = new PluginRulesPart(wakes(), repairs)
    this.peers = new PeersPart(context, now, wakes(), repairs, {
      changed: () => this.#probing?.aimAnew(),
      note: (text, isNew) => this.note(text, isNew),
    })
    this.dataPath = new DataPathPart(context, now, wakes(), repairs)
    this.policy =
      context.objects && context.isPolicyOn
        ? new PolicyPart(context, context.objects, now, wakes(), repairs)
        : undefined
    this.services =
      context.objects && context.services
        ? new ServicesPart(context, now, context.objects, context.services, wakes(), repairs)
        : undefined
    this.#installation = new InstallationPart(
      now,
      wakes(),
      () => this.#scheduler.isComplete(this.#installation),
      () => context.synced(),
    )
    this.#probing =
      probes &&
      new Probing(probes, context.backend, now, {
        note: (text) => this.note(text, true),
        log,
        silenced: () => this.#judge(),
        changed: () => this.#tell(),
      })
    const all = [
      this.uplink,
      this.lease,
      this.files,
      this.table,
      this.forward,
      this.pluginRules,
      this.peers,
      this.dataPath,
      ...(this.policy ? [this.policy] : []),
      ...(this.services ? [this.services] : []),
      this.#installation,
    ]
    this.#scheduler = new Scheduler(all, {
      failures: context.failures,
      failed: (text, isNew) => this.note(text, isNew),
      isFatal: (cause) => cause instanceof SubnetTakenError,
      stepped: (part, seconds) => {
        now.steps = withStep(now.steps, seconds)
        if (!now.isSynced && part !== this.#installation) this.#installation.wakes.poke('parts')
        this.#judge()
        this.#tell()
      },
    })
  }

  /**
   * Works until the signal. After a fatal error (SubnetTakenError), `end` ends the signal. All parts finish their
   * steps, and then the error is thrown.
   */
  async run(signal: AbortSignal, end: () => void): Promise<void> {
    const probing = this.#probing && setInterval(() => this.#probing?.tick(), PROBE_MS)
    this.#scheduler.renew('start')
    const questions = this.policy && (await this.#answer(this.policy))
    const ended = new AbortController()
    const { policy, services } = this
    const guarded = services ?? policy
    // A part that waits for other settings is asked again at once.
    if (guarded)
      keepBridgedFrames(
        () => services !== undefined || policy?.isBridged() === true,
        (names) => this.#settingsRepaired(guarded, names),
        AbortSignal.any([signal, ended.signal]),
      )
    this.dataPath.watch(AbortSignal.any([signal, ended.signal]))
    const drops = this.policy?.followDrops(AbortSignal.any([signal, ended.signal]))
    try {
      await this.#scheduler.run(this.#context.resyncMs, signal, end)
    } finally {
      clearInterval(probing)
      questions?.stop()
      this.services?.close()
      ended.abort()
      await drops
      this.#context.probes?.close()
    }
  }

  #answer(policy: PolicyPart): Promise<{ stop(): void }> {
    const { policySocket } = this.#context
    return openSocket(policySocket, () => {
      const questions = listen(
        { unix: policySocket },
        'policy',
        commands('command', {
          ...admissionCommands(policy),
          ...policyCommands(policy, (ip, protocol, port) => this.services?.translate(ip, protocol, port)),
        }),
      )
      policy.recall()
      return questions
    })
  }

  #settingsRepaired(part: Part, names: readonly string[]): void {
    this.#repairs.note(
      part,
      'sysctl',
      names.map((name) => ({ key: name, title: name })),
    )
    part.wakes.poke('sysctl')
  }

  /** Makes every part check everything again. */
  renew(why: string): void {
    this.#scheduler.renew(why)
  }

  /** Takes the leases of all nodes from the store. */
  take(snapshot: Snapshot): void {
    this.lease.take(snapshot)
    this.#probing?.aimAnew()
    this.peers.wakes.poke('leases')
  }

  /**
   * Reports a failure in the log and in the status. By default, the log has it only when it differs from the last one.
   * `isNew` overrides this.
   */
  note(text: string, isNew = this.#now.lastError?.what !== text): void {
    if (isNew) this.#context.warn(`agent: ${text}`)
    this.#now.lastError = { at: Date.now(), what: text }
  }

  /** The current status. */
  status(): Status {
    return tell(this.#context, this.#standing())
  }

  /** The part that has been in one step for the longest time. */
  busy(): ReturnType<Scheduler['busy']> {
    return this.#scheduler.busy()
  }

  // Wakes these parts even when the choice stays the same. A link that was down and is up again has lost its routes.
  #uplinkLooked(): void {
    for (const part of [this.lease, this.files, this.peers]) part.wakes.poke('uplink')
  }

  #serve(lease: Lease): void {
    const before = this.#now.served
    this.#now.served = lease
    if (before && isSame(before.subnets, lease.subnets)) return
    this.#probing?.aimAnew()
    for (const part of [
      this.table,
      this.forward,
      this.peers,
      this.dataPath,
      ...(this.policy ? [this.policy] : []),
      ...(this.services ? [this.services] : []),
    ])
      part.wakes.poke('lease')
  }

  #standing(): Standing {
    const { converger } = this.#context
    return {
      ...this.#now,
      refusal: this.lease.refusal,
      fights: this.#repairs.fights((key) => converger.isPending(key)),
    }
  }

  #judge(): void {
    this.#context.condition(conditionOf(this.#context, this.#standing()))
  }

  #tell(): void {
    this.#context.changed(() => this.status())
  }
}
