import type { Ip } from '../../lib/text/ip.ts'
import type { Choice } from '../backend/uplink.ts'
import { Acceptance } from '../bgp/acceptance.ts'
import { type HandoverListener, RouteWriter } from '../bgp/handover.ts'
import { BgpProgram } from '../bgp/program.ts'
import { BgpFileWatch } from '../bgp/source.ts'
import { announcedAddresses, BGP_KINDS, besideBird, type FixedInputs, wantedBird } from '../bgp/state.ts'
import { bgpStatus, SessionsView } from '../bgp/view.ts'
import type { ObjectSource } from '../cluster/source.ts'
import type { Lease } from '../lease/lease.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { BasePart, type Shared } from './base.ts'
import type { KernelInputs, Reports } from './inputs.ts'
import type { ServicesPart } from './services.ts'

/** How often the part looks again for what is not known yet, in milliseconds. */
const LOOK_MS = 1000
/** What the part needs of the agent. */
export interface BgpPartOptions
  extends HandoverListener,
    Omit<FixedInputs, 'services'>,
    Pick<KernelInputs, 'quietMs' | 'run'>,
    Pick<Reports, 'failures' | 'warn'> {
  /** The folder of BIRD. */
  readonly dir: string
  readonly backendType: string
  readonly objects: ObjectSource | undefined
  readonly services: Pick<ServicesPart, 'reached' | 'onReached'> | undefined
  /** Called when the status of BGP has changed. */
  changed(): void
}

/** Runs BIRD with the configuration of BGP. BIRD and its routes stay when the agent ends. */
export class BgpPart extends BasePart<BgpPartOptions> {
  readonly name = 'bgp'
  readonly trouble = 'Cannot run BGP'
  readonly quietMs = this.given.quietMs
  readonly #file: BgpFileWatch
  readonly #acceptance: Acceptance
  readonly #program: BgpProgram
  readonly #writer: RouteWriter
  readonly #view = new SessionsView()

  constructor(options: BgpPartOptions, shared: Shared) {
    super(options, shared)
    const { queue } = this
    this.#acceptance = new Acceptance(options.path)
    const ended = () => queue.addUrgent('BIRD ended')
    this.#program = new BgpProgram({ ...options, again: (why, ms) => queue.add(why, ms), ended }, this.#acceptance)
    options.services?.onReached(() => queue.addUrgent('services'))
    options.objects?.changes(BGP_KINDS, () => queue.add('labels'))
    this.#file = new BgpFileWatch(options.path, options.backendType, options.byBird !== undefined)
    this.#acceptance.read(this.#file.read)
    this.#writer = new RouteWriter(this.#acceptance, options.byBird !== undefined, options)
    this.#publish()
  }

  /** Who writes the routes to other nodes. The agent does so until BIRD's configuration has proved itself. */
  get programs(): 'agent' | 'bird' {
    return this.#writer.programs
  }

  /** The peers that are nodes, as they may announce subnets. Their tunnelled packets are taken without a lease. */
  get nodes(): readonly Ip[] {
    return this.#writer.nodes
  }

  /** The addresses of Services that this node announces now. */
  get announced(): ReadonlySet<Ip> {
    const source = this.#program.pid === undefined ? undefined : this.#acceptance.chosen
    return new Set(source && announcedAddresses(source, this.given, this.#program.isPatient).addresses)
  }

  async step(): Promise<Outcome> {
    const { served: lease, choice, snapshot } = this.now
    if (!lease || !choice || !snapshot) return WAITING
    try {
      const problems = await this.#advance(lease, choice, snapshot.leases)
      return problems.length > 0 ? { failures: problems.map(failureOf) } : DONE
    } catch (cause) {
      this.#publish()
      // Pods do not need BGP to reach each other.
      return { failures: [failureOf(`${this.trouble}: ${(cause as Error).message}`)] }
    }
  }

  /** Follows BIRD, the sessions and the file until the signal. */
  async follow(signal: AbortSignal): Promise<void> {
    const file = this.#file.follow(signal, (read) => {
      this.#acceptance.read(read)
      this.queue.add('bgp-config')
    })
    const bird = this.#program.follow(signal, {
      seen: (sessions) => {
        const states = this.#view.withReasons(sessions)
        this.#report('sessions of BGP', this.#view.seen(this.#program.made, states, performance.now()))
        this.#publish()
        if (this.#acceptance.isTrying) this.queue.add('trial')
      },
      rival: (clause) => this.#report('another BIRD', clause && `BGP is disturbed: ${clause}`),
    })
    await Promise.all([file, bird])
  }

  async #advance(lease: Lease, choice: Choice, leases: readonly Lease[]): Promise<readonly string[]> {
    await this.#program.judge(this.#view)
    this.#writer.learnNodes()
    const [source, problems] = [this.#acceptance.chosen, this.#acceptance.problems]
    if (!source) return problems
    // The new routes are there before the old ones go: the agent's before BIRD is told, and BIRD's before the agent is.
    const { next } = this.#writer
    if (next === 'agent') this.#writer.handOver()
    // BIRD needs the device of the tunnel, which the first step of the peers makes.
    const isEarly = next === 'agent' ? this.now.programs === 'bird' : this.now.programs === undefined
    const { logFile, isPatient } = this.#program
    const inputs = { ...this.given, lease, uplink: choice.uplink, leases, logFile, isPatient }
    const wanted = isEarly ? undefined : wantedBird(source, inputs)
    if (!wanted?.made) {
      this.queue.add('unknown', LOOK_MS)
      return problems
    }
    const beside = this.programs === 'agent' ? [] : besideBird(this.given.path, lease, choice.foreignRoutes ?? [])
    const waits = await this.#program
      .bring(source, wanted.made)
      .finally(() => this.#view.configured(this.#program.made, this.#program.pid))
    this.#writer.handOver()
    this.#publish()
    return [...problems, ...wanted.problems, ...beside, ...(waits === undefined ? [] : [`${this.trouble}: ${waits}`])]
  }

  #report(name: string, text: string | undefined): void {
    this.given.failures.report(name, text === undefined ? [] : [failureOf(text)])
  }

  #publish(): void {
    const next = bgpStatus(this.#acceptance.current?.conf, this.#program, this.#view.sessions, this.programs === 'bird')
    if (Bun.deepEquals(this.now.bgp, next)) return
    this.now.bgp = next
    this.given.changed()
  }
}

const failureOf = (text: string): Failure => ({ scope: 'part', text })
