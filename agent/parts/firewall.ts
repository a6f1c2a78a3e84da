import { hasOldFilter } from '../../lib/nft/forward-chain.ts'
import { leaveForward, passForward } from '../firewall/forward.ts'
import { overlaid, partsOf, ruleset } from '../firewall/masquerade.ts'
import { keepTable } from '../firewall/table.ts'
import { both } from '../lease/families.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { every } from '../scheduler/pause.ts'
import { BasePart } from './base.ts'
import type { FirewallInputs, KernelInputs, NetworkInputs } from './inputs.ts'

/** How often the old tables of iptables are looked at, where the kernel has them. Milliseconds. */
const OLD_TABLES_MS = 8000
const TROUBLE = 'Cannot load the firewall rules'

/** What the part needs of the agent. */
export interface FirewallPartOptions extends Pick<NetworkInputs, 'facts'>, Pick<KernelInputs, 'run' | 'quietMs'> {
  readonly firewall: FirewallInputs
}

/** Keeps the agent's nft table. */
export class TablePart extends BasePart<FirewallPartOptions> {
  readonly name = 'table'
  readonly trouble = TROUBLE
  readonly quietMs = this.given.quietMs
  readonly #table = keepTable(this.given.firewall.table)
  #isLoaded = false

  invalidate(): void {
    this.#table.invalidate()
  }

  async step(): Promise<Outcome> {
    const { firewall, run, facts } = this.given
    const { table, masquerade, keep, random } = firewall
    const { served } = this.now
    if (!served) return WAITING
    if (this.repairs.isHeld(this)) return DONE
    const rules = { networks: facts.networks, own: both(served.subnets), masquerade, keep, random }
    const isChanged = await this.#table.ensure(
      { over: overlaid(table, rules), whole: ruleset(table, rules), parts: partsOf(rules) },
      run,
    )
    if (isChanged && this.#isLoaded) this.repairs.ofPart(this, 'nft', [`nft table ${table}`])
    this.#isLoaded = true
    this.now.kinds = { ...this.now.kinds, nft: { wanted: 1, programmed: 1, repaired: this.repairs.count('nft') } }
    return DONE
  }
}

/** Keeps the rules that let pods' packets pass the FORWARD chain of iptables. */
export class ForwardPart extends BasePart<FirewallPartOptions> {
  readonly name = 'forward'
  readonly trouble = TROUBLE
  readonly quietMs = this.given.quietMs
  #isLoaded = false

  /** Looks at the old tables from time to time until the signal: the kernel tells of no change there. */
  watch(signal: AbortSignal): void {
    if (!this.given.firewall.forward) return
    const look = () => {
      if (hasOldFilter('ip') || hasOldFilter('ip6')) this.queue.add('old tables')
    }
    every(OLD_TABLES_MS, look, signal)
  }

  async step(): Promise<Outcome> {
    const { firewall, run, facts } = this.given
    if (!this.now.served) return WAITING
    // When forward rules are off, the rules of an earlier start are removed.
    if (!firewall.forward && !this.#isLoaded) await leaveForward(facts.instance, run)
    if (firewall.forward && !this.repairs.isHeld(this)) {
      const changed = await passForward(facts.networks, facts.instance, run)
      if (this.#isLoaded) this.repairs.ofPart(this, 'nft', changed)
    }
    this.#isLoaded = true
    return DONE
  }
}
