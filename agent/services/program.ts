import type { Run } from '../../lib/os/run.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Failure } from '../scheduler/failures.ts'
import { allUdp, formerUdp, StaleConnections, staleOf } from './conntrack.ts'
import { HealthServers, Progress } from './health.ts'
import { type FoundInKernel, KernelTables } from './kernel-tables.ts'
import { LoopbackPorts } from './loopback-ports.ts'
import { ReachedAddresses } from './reached.ts'
import type { ServicesState } from './state.ts'
import { type Addresses, isOnLoopback, type TableOptions } from './table.ts'
import type { ChangedFrontends } from './wanted-elements.ts'

/** The settings of what the kernel gets. `health`: where the node's answer for load balancers is. Absent for none. */
export interface ProgramOptions extends TableOptions {
  readonly health?: { readonly host: string; readonly port: number }
}

/** One step: what it found in the kernel, and whether it was the first one. */
export interface Programmed extends FoundInKernel {
  readonly isFirst: boolean
}

/**
 * Takes what Services need to the kernel: nft tables, connections that go on to the right endpoints, and listening ports.
 * It remembers what the kernel has. The tables stay when the agent ends, and connections never notice.
 */
export class ServicesProgram {
  /** The addresses at which this node serves clients from outside. */
  readonly reached = new ReachedAddresses()
  readonly #state: ServicesState
  readonly #tables: KernelTables
  readonly #stale = new StaleConnections()
  readonly #progress = new Progress()
  readonly #health: HealthServers
  readonly #loopback: LoopbackPorts | undefined

  /** `portsFailing` gets all failures of NodePorts on ::1, each time they change. */
  constructor(
    state: ServicesState,
    options: ProgramOptions,
    run: Run,
    portsFailing: (failures: readonly Failure[]) => void,
  ) {
    this.#state = state
    this.#tables = new KernelTables(state, options, run)
    this.#health = new HealthServers(options.health, this.#progress, () => state.isLeaving)
    this.#loopback = isOnLoopback(options, 6) ? new LoopbackPorts(portsFailing) : undefined
  }

  /** Notes that objects changed, which the kernel does not have yet. */
  queued(): void {
    this.#progress.changed()
  }

  /** Notes that another program may have changed the tables. */
  invalidate(): void {
    this.#tables.invalidate()
  }

  /**
   * Takes changed frontends to the kernel. An address of `reached` that begins comes when the kernel has it, and one that
   * ends goes before the kernel loses it. Throws ExecError when nft refuses.
   */
  update(changed: ChangedFrontends, addresses: Addresses): Promise<Programmed> {
    return this.#progress.during(async () => {
      const { isFirst } = this.#tables
      const { served, nodePorts } = this.#state.wanted
      this.#stale.note(isFirst ? allUdp(served.values()) : staleOf(changed.values()))
      this.reached.note(changed.values(), this.#state.isForOutside)
      this.reached.shrink()
      const found = await this.#tables.update(addresses)
      this.#loopback?.update(nodePorts.values())
      this.reached.grow()
      this.#stale.note(formerUdp(found.inherited, served))
      return { ...found, isFirst }
    })
  }

  /** Opens and closes the ports for load balancers. Gives one sentence per port that cannot be opened. */
  openHealthPorts(): string[] {
    return this.#health.update(this.#state.wanted.health)
  }

  /** Forgets UDP connections to former endpoints (`StaleConnections`). Throws Error when the kernel refuses. */
  forgetStale(inside: () => readonly Cidr[], forgot: (count: number) => void): Promise<void> {
    return this.#stale.forget(inside, forgot)
  }

  /** Ends all servers: those for load balancers, and those of NodePorts on ::1. */
  close(): void {
    this.#health.close()
    this.#loopback?.close()
  }
}
