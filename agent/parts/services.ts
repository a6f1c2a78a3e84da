import { localAddresses } from '../../lib/os/routes.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { Changes } from '../cluster/changes.ts'
import type { Protocol } from '../cluster/reading.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { type ProgramOptions, ServicesProgram } from '../services/program.ts'
import type { Reached } from '../services/reached.ts'
import { SERVICE_KINDS, type ServicesOptions, ServicesState } from '../services/state.ts'
import { addressProblems, objectProblems, type ServiceView, translationOf, viewsOf } from '../services/view.ts'
import { ServicesFigures } from '../state/services-figures.ts'
import { BasePart, type Shared } from './base.ts'
import type { KernelInputs, Reports, SelfInputs } from './inputs.ts'

/** When a port that another program had, or a look at connections that failed, is tried again. Milliseconds. */
const AGAIN_MS = 5000

/** What the part needs of the agent. `networks` are those of all pods. */
export interface ServicesPartOptions
  extends Pick<SelfInputs, 'node' | 'before'>,
    Pick<KernelInputs, 'quietMs' | 'run'>,
    Pick<Reports, 'failures'> {
  readonly objects: ObjectSource
  readonly settings: ProgramOptions & ServicesOptions
  readonly networks: readonly Cidr[]
  /** Called after connections have ended: their packets may take the fast path. Throws ExecError. */
  ended(): Promise<void>
}

/** Keeps Services in the kernel. */
export class ServicesPart extends BasePart<ServicesPartOptions> {
  readonly name = 'services'
  readonly trouble = 'Cannot program Services'
  readonly quietMs = this.given.quietMs
  readonly #changes: Changes
  readonly #state: ServicesState
  readonly #program: ServicesProgram
  readonly #figures = new ServicesFigures()
  /** The version of the source ranges that all connections meet. */
  #sources: number | undefined

  constructor(options: ServicesPartOptions, shared: Shared) {
    super(options, shared)
    const { queue } = this
    const { node, objects, settings, networks, run, failures } = options
    this.#state = new ServicesState(objects, node, settings, networks)
    this.#program = new ServicesProgram(this.#state, settings, run, (all) => {
      failures.report('NodePorts on ::1', all)
      if (all.length > 0) queue.add('ports', AGAIN_MS)
    })
    this.#changes = objects.changes(SERVICE_KINDS, () => {
      this.#program.queued()
      this.#figures.queued()
      queue.add('objects')
    })
  }

  invalidate(): void {
    this.#program.invalidate()
  }

  /** The Services as people see them, sorted by name. `announced`: the addresses that this node announces by BGP. */
  view(announced?: ReadonlySet<Ip>): ServiceView[] {
    return viewsOf(this.#state, announced)
  }

  /** Where the rules lead packets to this address and port. Undefined when they leave the packets alone. */
  translate(ip: Ip, protocol: Protocol, port: number): ReturnType<typeof translationOf> {
    const isOfNode = localAddresses(isSix(ip) ? 6 : 4).has(ip)
    return translationOf(this.#state.wanted, { ip, protocol, port }, isOfNode, this.#addresses().clusterIPs)
  }

  /** The addresses at which this node serves clients from outside. Undefined before the first step. */
  get reached(): Reached | undefined {
    return this.#program.reached.all
  }

  /** Calls `changed` after each change of `reached`. */
  onReached(changed: () => void): void {
    this.#program.reached.onChanged(changed)
  }

  /** Ends the servers of healthCheckNodePort, and those of NodePorts on ::1. */
  close(): void {
    this.#program.close()
  }

  async step(): Promise<Outcome> {
    const { trouble, isKnown } = this.#state
    this.now.unknownObjects = { ...this.now.unknownObjects, services: trouble }
    // The table of an earlier run stays until everything is known.
    if (!isKnown) {
      this.#report('objects of services', trouble === undefined ? [] : [trouble], 'node')
      return WAITING
    }
    await this.#update()
    const closed = this.#program.openHealthPorts()
    if (closed.length > 0) this.queue.add('ports', AGAIN_MS)
    this.#report('objects of services', [...objectProblems(this.#state), ...closed])
    this.#report('addresses of services', addressProblems(this.#state, this.#addresses()))
    return DONE
  }

  // Takes the changes of objects to the kernel.
  async #update(): Promise<void> {
    const [keys, began] = [this.#changes.take(), performance.now()]
    const found = await this.#program.update(this.#state.apply(keys), this.#addresses())
    // The rules ask each packet for its source. What took the fast path has to come to them.
    const { sourcesVersion } = this.#state.wanted
    if (sourcesVersion !== this.#sources) await this.given.ended()
    this.#sources = sourcesVersion
    this.repairs.note(this, 'sysctl', found.settings)
    if (found.repaired.length > 0) this.repairs.ofPart(this, 'nft', found.repaired)
    this.#report('chains of services', found.unremoved)
    // What happened before the start was not this run's to wait for.
    const triggered = this.#state.takeTriggered()
    this.#figures.synced(keys, (performance.now() - began) / 1000, found.isFirst ? [] : triggered)
    this.now.services = this.#figures.status(this.#state.counts())
    void this.#forgetStale()
  }

  // Runs beside the steps: cleaning never delays programming.
  async #forgetStale(): Promise<void> {
    const inside = () => this.#addresses().inside
    try {
      let forgotten = 0
      await this.#program.forgetStale(inside, (count) => {
        forgotten += count
        this.#figures.forgot(count)
        this.now.services = this.#figures.status(this.#state.counts())
        this.#report('connections of services', [])
      })
      if (forgotten > 0) await this.given.ended()
    } catch (cause) {
      this.#report('connections of services', [(cause as Error).message])
      this.queue.add('connections', AGAIN_MS)
    }
  }

  #addresses(): ReturnType<ServicesState['addresses']> {
    // Before the lease of this run is known, the pods have the addresses of the one before.
    const lease = this.now.served ?? this.now.lease
    return this.#state.addresses(lease?.subnets ?? this.given.before, this.now.choice?.uplink.tunnel)
  }

  #report(what: string, texts: readonly string[], scope: 'part' | 'node' = 'part'): void {
    const failures = texts.map((text) => ({ scope, text }))
    this.given.failures.report(what, failures)
  }
}
