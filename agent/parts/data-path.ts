import { defaultDevice } from '../../lib/os/routes.ts'
import { AGENT_CHECKS, examine, failuresOf } from '../doctor/doctor.ts'
import { readCounters } from '../doctor/facts/counters.ts'
import { agentFactsOf, factsOfAgent } from '../doctor/facts/of-agent.ts'
import type { Pod } from '../doctor/facts/pods.ts'
import { isOfOthers, NO_CHAINS, readRuleset } from '../doctor/facts/ruleset.ts'
import { PodLinks } from '../doctor/link-repairs.ts'
import { TABLE as FAST_PATH } from '../fast-path/table.ts'
import { Forwarding } from '../firewall/forwarding.ts'
import type { Event } from '../kernel/events.ts'
import type { RuleChange } from '../kernel/rule-events.ts'
import { both } from '../lease/families.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import { watchFolders } from '../scheduler/folder-watch.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { every } from '../scheduler/pause.ts'
import { TABLE as SERVICES_TABLE, SOURCES } from '../services/table.ts'
import { BasePart, type Shared } from './base.ts'
import type { FileInputs, KernelInputs, NetworkInputs, Reports, SelfInputs } from './inputs.ts'

/**
 * How often settings and the default route are looked at, in milliseconds. The kernel tells nobody of settings. A look
 * reads some small files.
 */
const LOOK_MS = 4000
/** The checks of the doctor are made at each of so many looks, and at each while they find something. */
const EXAMINED_EVERY = 4
/**
 * When a change of a pod's link, and when one of a chain, is looked at. An ADD or another program may be at work.
 * Milliseconds.
 */
const [LINKS_MS, RULES_MS, BUSY_MS] = [500, 2000, 1000]
/** How often missing folders are looked for, in milliseconds. */
const FOLDERS_MS = 16_000
/** The triggers after which chains are as they were. */
const WITHOUT_CHAINS: readonly string[] = ['links', 'retry', 'networks']
const OWN_TABLES: readonly string[] = [POLICY_TABLE, SERVICES_TABLE, SOURCES, GUARD, FAST_PATH, 'plumb']
const NO_WAY_OUT = 'its pods reach nobody outside the network; run ip route add default via GATEWAY'
const LOST_DEFAULT: Failure = { scope: 'part', text: `This node has lost its default route: ${NO_WAY_OUT}` }

/** What the part needs of the agent. */
export interface DataPathPartOptions
  extends Pick<SelfInputs, 'node'>,
    Pick<NetworkInputs, 'conf' | 'backend' | 'options'>,
    Pick<KernelInputs, 'run' | 'converger'>,
    Pick<FileInputs, 'networks'>,
    Pick<Reports, 'failures'> {
  /** The names of the nft tables of this instance of the agent. */
  readonly tables: readonly string[]
}

/**
 * Keeps the way of pods' packets through this node: forwarding, the links of pods and their bridge. What plumb made or
 * set comes back. Anything else that stops packets is a failure: a finding of the doctor's checks (`doctor/checks/`), a
 * lost default route, a link that is gone.
 */
export class DataPathPart extends BasePart<DataPathPartOptions> {
  readonly name = 'data path'
  readonly trouble = 'Cannot look after the way of pods through the node'
  readonly quietMs = 50
  readonly #ownTables: ReadonlySet<string>
  readonly #links = new PodLinks()
  readonly #forwarding = new Forwarding()
  #ruleset = NO_CHAINS
  #looks = 0
  #counters = { reading: readCounters(), at: performance.now() }
  #hadDefault = false

  constructor(options: DataPathPartOptions, shared: Shared) {
    super(options, shared)
    this.#ownTables = new Set([...OWN_TABLES, ...options.tables])
  }

  /**
   * Looks at settings and the default route every four seconds until the signal, and at the folders of networks and
   * plugins when they change. `foldersChanged` is called then.
   */
  watch(signal: AbortSignal, foldersChanged: () => void): void {
    const changed = () => {
      this.queue.add('networks', LINKS_MS)
      foldersChanged()
    }
    void watchFolders(this.given.networks.dirs, changed, () => {}, FOLDERS_MS, signal)
    every(LOOK_MS, () => this.#look(false), signal)
  }

  /** The pods of this node, as the last look has found them. */
  get pods(): readonly Pod[] {
    return this.#links.pods
  }

  /** Triggers the part when an event may be about the links of pods. */
  linkChanged(event: Event): void {
    if (this.#links.isAwaited(event)) this.queue.add('links')
    else if (this.#links.concerns(event, this.now.choice?.uplink.name)) this.queue.add('links', LINKS_MS)
  }

  /** Triggers the part when a chain of another program may have changed. */
  ruleChanged(change: RuleChange): void {
    if (isOfOthers(change, this.#ownTables)) this.queue.add('rules', RULES_MS)
  }

  async step(why: readonly string[]): Promise<Outcome> {
    const { served } = this.now
    if (!served) return WAITING
    const { run, failures, converger } = this.given
    const isHeld = this.repairs.isHeld(this)
    const { mended, lost, isBusy } = await this.#links.keep(both(served.subnets), isHeld, converger, run)
    if (mended.length > 0) this.repairs.ofPart(this, 'link', mended)
    const ofLinks = lost.map((text): Failure => ({ scope: 'part', text }))
    failures.report('links of pods', ofLinks)
    // Without nft the parts that load rules say so.
    if (why.some((one) => !WITHOUT_CHAINS.includes(one))) this.#ruleset = await readRuleset(run).catch(() => NO_CHAINS)
    this.#look(true)
    if (isBusy) this.queue.add('links', BUSY_MS)
    return lost.length > 0 ? { isIncomplete: true } : DONE
  }

  #look(isDue: boolean): void {
    const { served, choice } = this.now
    if (!served) return
    const { backend, options, failures } = this.given
    const links = [...(choice ? [choice.uplink.name] : []), ...backend.links(options), ...this.#links.entrances]
    for (const setting of this.#forwarding.keep(served.subnets, links)) this.repairs.note(this, 'sysctl', [setting])
    if (isDue || this.now.findings.length > 0 || this.#looks++ % EXAMINED_EVERY === 0)
      this.now.findings = examine(this.#facts(served.subnets), AGENT_CHECKS).findings
    const hasDefault = defaultDevice() !== undefined
    this.#hadDefault ||= hasDefault
    failures.report('checks', failuresOf(this.now.findings))
    failures.report('default route', this.#hadDefault && !hasDefault ? [LOST_DEFAULT] : [])
  }

  // The facts since the last look.
  #facts(subnets: Parameters<typeof agentFactsOf>[0]): ReturnType<typeof factsOfAgent> {
    const { reading, at } = this.#counters
    const before = { reading, ms: performance.now() - at }
    this.#counters = { reading: readCounters(), at: performance.now() }
    // At its start the agent installs the network last.
    const lists = () => (this.now.isSynced ? this.given.networks.read() : undefined)
    const agent = agentFactsOf(subnets, this.now, this.given)
    return factsOfAgent({ agent, pods: this.#links.pods, ruleset: this.#ruleset, lists, before })
  }
}
