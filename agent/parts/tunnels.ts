import { countedPackets, isThere } from '../../lib/os/nftables.ts'
import { listed } from '../../lib/os/show.ts'
import { contains } from '../../lib/text/cidr.ts'
import { ExecError } from '../../lib/text/errors.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { sourcesOf } from '../backend/peers.ts'
import { removal } from '../firewall/masquerade.ts'
import { REFUSED, SHAPES, STRANGERS, setOf, tunnelRules } from '../firewall/tunnels.ts'
import { UnknownSenders } from '../firewall/unknown-senders.ts'
import { textOfBytes } from '../kernel/element-bytes.ts'
import { dumpElements } from '../kernel/element-dump.ts'
import { Elements, type Stepped } from '../kernel/elements.ts'
import { both } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import { pause } from '../scheduler/pause.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'
import type { TunnelsStatus } from '../state/status.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

/** How often the agent looks for addresses whose packets were refused, in milliseconds. */
const LOOK_MS = 10_000
/** The number of attempts to load the rules while no other program commits a transaction. */
const TRIES = 5

/**
 * Keeps the rules that refuse tunnelled packets from addresses that no lease has. The sets of these addresses follow
 * the leases. Rules and sets stay when the agent ends.
 */
export class TunnelsPart implements Part {
  readonly name = 'tunnels'
  readonly trouble = 'Cannot load the rules that refuse tunnelled packets of strangers'
  readonly quietMs: number
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #repairs: Repairs
  readonly #elements: Elements
  readonly #table: string
  readonly #others: () => readonly Ip[]
  /** The rules that the kernel has: as they were loaded, and as nft printed them afterwards. */
  #loaded: { readonly text: string; readonly shown: string } | undefined
  readonly #strangers = new UnknownSenders()

  /** `others` gives the nodes that have no lease here, and that BGP knows. */
  constructor(context: Context, now: NodeState, queue: Queue, repairs: Repairs, others: () => readonly Ip[]) {
    this.#others = others
    this.#context = context
    this.#now = now
    this.queue = queue
    this.#repairs = repairs
    this.quietMs = context.quietMs
    this.#table = context.firewall.tunnels.table
    this.#elements = new Elements(this.#table, SHAPES)
  }

  /** Notes that another program may have changed the table. */
  invalidate(): void {
    this.#elements.invalidate()
  }

  async step(): Promise<Outcome> {
    const { backend, options, firewall, stale } = this.#context
    const { served, choice, snapshot } = this.#now
    if (!served || !choice || !snapshot) return WAITING
    if (this.#repairs.isHeld(this)) return DONE
    const { sources } = firewall.tunnels
    const entrances = sources === 'any' ? [] : (backend.entrances?.(options, choice.uplink) ?? [])
    try {
      if (sources === 'any' || entrances.length === 0) return await this.#leave()
      // The table of the previous run may know more nodes than the copy on disk. It stays until the store answers.
      const isCopy = snapshot.leases === stale?.leases
      if (isCopy && this.#loaded === undefined && isThere('inet', this.#table)) return DONE
      this.#want([...sourcesOf(served), ...both(choice.uplink.tunnel), ...this.#others()], snapshot.leases)
      await this.#program(tunnelRules(this.#table, entrances, sources))
    } catch (cause) {
      // Pods have their network without these rules.
      return { failures: [{ scope: 'part', text: `${this.trouble}: ${(cause as Error).message}` }] }
    }
    this.#now.tunnels = () => this.#status()
    return DONE
  }

  #want(own: readonly Ip[], leases: readonly Lease[]): void {
    const wanted = new Set([...own, ...leases.flatMap(sourcesOf)])
    for (const set of Object.keys(SHAPES))
      for (const ip of this.#elements.wanted(set).keys()) if (!wanted.has(ip as Ip)) this.#elements.remove(set, ip)
    for (const ip of wanted) this.#elements.put(setOf(ip), ip)
  }

  async #program(lines: readonly string[]): Promise<void> {
    const text = lines.join('\n')
    const before = this.#loaded
    const isForeign = before?.text === text && this.#elements.mayDiffer && (await this.#shown()) !== before.shown
    const isLoaded = before?.text === text && !isForeign
    const { repaired } = isLoaded ? await this.#elements.step(this.#context.run) : await this.#load(lines)
    const changed = [
      ...(isForeign ? [`nft table ${this.#table}`] : []),
      ...repaired.map((what) => `nft table ${this.#table}, ${what}`),
    ]
    if (changed.length > 0) this.#repairs.ofPart(this, 'nft', changed)
  }

  // One transaction has the rules and all elements, so that no packet of a node meets the rules without its address.
  async #load(lines: readonly string[]): Promise<Stepped> {
    const { run } = this.#context
    this.#loaded = undefined
    for (let tries = 1; ; tries++) {
      const stepped = await this.#elements.step(run, { before: lines }).catch((cause: unknown) => {
        if (!(cause instanceof ExecError) || !isThere('inet', this.#table)) throw cause
        // The table has another shape.
        this.#elements.forget()
        return this.#elements.step(run, { before: [...removal(this.#table).trimEnd().split('\n'), ...lines] })
      })
      const shown = await this.#shown()
      // When no other program changed rules in between, nft shows what was loaded.
      this.#elements.invalidate()
      if (this.#elements.mayDiffer && tries < TRIES) continue
      // Another program has removed the table already. The next step must load it.
      this.#loaded = shown === '' ? undefined : { text: lines.join('\n'), shown }
      return stepped
    }
  }

  // The rules as nft prints them, without elements and counts. Empty when there is no such table.
  #shown(): Promise<string> {
    return listed(['nft', '-s', '-t', 'list', 'table', 'inet', this.#table], this.#context.run)
  }

  async #leave(): Promise<Outcome> {
    delete this.#now.tunnels
    this.#loaded = undefined
    if (!isThere('inet', this.#table)) return DONE
    const argv = ['nft', '-f', '-']
    const { status, stderr } = await this.#context.run(argv, removal(this.#table))
    if (status !== 0) throw new ExecError(argv, `table inet ${this.#table}`, stderr.split('\n', 1)[0] ?? '')
    return DONE
  }

  // Undefined when the kernel refuses to answer.
  #status(): TunnelsStatus | undefined {
    const nodes = Object.keys(SHAPES).reduce((sum, set) => sum + this.#elements.size(set), 0)
    try {
      const { all: strangers, lately } = this.#strangers
      return { nodes, refused: countedPackets('inet', this.#table, REFUSED) ?? 0, lately, strangers }
    } catch {
      return undefined
    }
  }

  #seen(): Ip[] {
    return Object.entries(STRANGERS).flatMap(([set, type]) =>
      [...dumpElements(this.#table, set).keys()].map((bytes) => textOfBytes(bytes, [type]) as Ip),
    )
  }

  // A lease that came, or a setting of this run.
  #isTaken(ip: Ip): boolean {
    const { sources } = this.#context.firewall.tunnels
    return this.#elements.wanted(setOf(ip)).has(ip) || (sources !== 'any' && sources.some((one) => contains(one, ip)))
  }

  /**
   * Logs each address whose packets were refused and that still has no lease after a while. It does so once, as long as
   * the address does not stop for ten minutes.
   */
  async watch(signal: AbortSignal): Promise<void> {
    for (; !signal.aborted; await pause(LOOK_MS, signal)) {
      if (this.#loaded === undefined) continue
      try {
        const packets = countedPackets('inet', this.#table, REFUSED) ?? 0
        const isCurrent = this.#context.store.state().connected && this.#now.stale === undefined
        const seen = { addresses: this.#seen(), packets }
        const fresh = this.#strangers.look(performance.now(), seen, (ip) => this.#isTaken(ip), isCurrent)
        if (fresh.length === 0) continue
        const why = 'no lease has this address; if a node sends from it, want it in --tunnel-sources'
        this.#context.warn(`agent: refused tunnelled packets from ${fresh.join(', ')}: ${why}`)
      } catch {
        // The kernel refused to answer. The next look asks again.
      }
    }
  }
}
