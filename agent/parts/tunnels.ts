import { contains } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { sourcesOf } from '../backend/peers.ts'
import { tunnelRules } from '../firewall/tunnels.ts'
import { TunnelsTable } from '../firewall/tunnels-table.ts'
import { UnknownSenders } from '../firewall/unknown-senders.ts'
import { both } from '../lease/families.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { pause } from '../scheduler/pause.ts'
import type { TunnelsStatus } from '../state/status.ts'
import { BasePart } from './base.ts'
import type { FirewallInputs, KernelInputs, LeaseInputs, NetworkInputs, Reports } from './inputs.ts'

/** How often the agent looks for addresses whose packets were refused, in milliseconds. */
const LOOK_MS = 10_000

/** What the part needs of the agent. */
export interface TunnelsPartOptions
  extends Pick<NetworkInputs, 'backend' | 'options'>,
    Pick<LeaseInputs, 'store' | 'stale'>,
    Pick<KernelInputs, 'run' | 'quietMs'>,
    Pick<Reports, 'warn'> {
  readonly tunnels: FirewallInputs['tunnels']
  /** The nodes that have no lease here, and that BGP knows. */
  others(): readonly Ip[]
}

/**
 * Keeps the rules that refuse tunnelled packets from addresses that no lease has. The sets of these addresses follow
 * the leases. Rules and sets stay when the agent ends.
 */
export class TunnelsPart extends BasePart<TunnelsPartOptions> {
  readonly name = 'tunnels'
  readonly trouble = 'Cannot load the rules that refuse tunnelled packets of strangers'
  readonly quietMs = this.given.quietMs
  readonly #table = new TunnelsTable(this.given.tunnels.table, this.given.run)
  readonly #strangers = new UnknownSenders()

  /** Notes that another program may have changed the table. */
  invalidate(): void {
    this.#table.invalidate()
  }

  async step(): Promise<Outcome> {
    const { backend, options, tunnels, stale, others } = this.given
    const { table, sources } = tunnels
    const { served, choice, snapshot } = this.now
    if (!served || !choice || !snapshot) return WAITING
    if (this.repairs.isHeld(this)) return DONE
    const entrances = sources === 'any' ? [] : (backend.entrances?.(options, choice.uplink) ?? [])
    try {
      if (sources === 'any' || entrances.length === 0) {
        delete this.now.tunnels
        await this.#table.remove()
        return DONE
      }
      // The table of the previous run may know more nodes than the copy on disk. It stays until the store answers.
      const isCopy = snapshot.leases === stale?.leases
      if (isCopy && this.#table.isInherited) return DONE
      const own = [...sourcesOf(served), ...both(choice.uplink.tunnel), ...others()]
      this.#table.want([...own, ...snapshot.leases.flatMap(sourcesOf)])
      const changed = await this.#table.update(tunnelRules(table, entrances, sources))
      if (changed.length > 0) this.repairs.ofPart(this, 'nft', changed)
    } catch (cause) {
      // Pods have their network without these rules.
      return { failures: [{ scope: 'part', text: `${this.trouble}: ${(cause as Error).message}` }] }
    }
    this.now.tunnels = () => this.#status()
    return DONE
  }

  // Undefined when the kernel refuses to answer.
  #status(): TunnelsStatus | undefined {
    const nodes = this.#table.size
    try {
      const { all: strangers, lately } = this.#strangers
      return { nodes, refused: this.#table.refusedPackets(), lately, strangers }
    } catch {
      return undefined
    }
  }

  // A lease that came, or a setting of this run.
  #isTaken(ip: Ip): boolean {
    const { sources } = this.given.tunnels
    return this.#table.has(ip) || (sources !== 'any' && sources.some((one) => contains(one, ip)))
  }

  /**
   * Logs each address whose packets were refused and that still has no lease after a while. It does so once, as long as
   * the address does not stop for ten minutes.
   */
  async watch(signal: AbortSignal): Promise<void> {
    for (; !signal.aborted; await pause(LOOK_MS, signal)) {
      if (!this.#table.isLoaded) continue
      try {
        const isCurrent = this.given.store.state().connected && this.now.stale === undefined
        const seen = this.#table.refused()
        const fresh = this.#strangers.look(performance.now(), seen, (ip) => this.#isTaken(ip), isCurrent)
        if (fresh.length === 0) continue
        const why = 'no lease has this address; if a node sends from it, want it in --tunnel-sources'
        this.given.warn(`agent: refused tunnelled packets from ${fresh.join(', ')}: ${why}`)
      } catch {
        // The kernel refused to answer. The next look asks again.
      }
    }
  }
}
