import { entries, isThere } from '../../lib/journal/journal.ts'
import { addressesNow, RT_SCOPE_LINK } from '../../lib/os/link-addresses.ts'
import { linksNow } from '../../lib/os/links.ts'
import { log } from '../../lib/os/log.ts'
import { linkTowards } from '../../lib/os/route-tables.ts'
import { defaultDevice } from '../../lib/os/routes.ts'
import { maybeSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import { ValueError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { AGENT_CHECKS, examine } from '../doctor/doctor.ts'
import { readCounters } from '../doctor/facts/counters.ts'
import type { AgentFacts } from '../doctor/facts/facts.ts'
import { readLinksNow } from '../doctor/facts/links.ts'
import { factsOfAgent } from '../doctor/facts/of-agent.ts'
import { entrancesOf, type Pod, podsOf } from '../doctor/facts/pods.ts'
import { NO_CHAINS, type Ruleset, readRuleset } from '../doctor/facts/ruleset.ts'
import { checkPodLinks, type LastLook, NOTHING } from '../doctor/pod-links.ts'
import { sentences } from '../kernel/batch.ts'
import type { Event } from '../kernel/events.ts'
import type { RuleChange } from '../kernel/rule-events.ts'
import { both } from '../lease/families.ts'
import type { Both } from '../lease/lease.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import { watchFolders } from '../scheduler/folder-watch.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import { TABLE as SERVICES_TABLE, SOURCES } from '../services/table.ts'
import type { NodeState } from '../state/condition.ts'
import { sentenceOf } from '../state/phrases.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

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
const FORWARDING = { v4: 'ipv4/ip_forward', v6: 'ipv6/conf/all/forwarding' } as const
const OWN_TABLES: readonly string[] = [POLICY_TABLE, SERVICES_TABLE, SOURCES, GUARD, 'plumb']

/**
 * Keeps the way of pods' packets through this node: forwarding, the links of pods and their bridge. What plumb made or
 * set comes back. Anything else that stops packets is a failure: a finding of the doctor's checks (`doctor/checks/`), a
 * lost default route, a link that is gone.
 */
export class DataPathPart implements Part {
  readonly name = 'data path'
  readonly trouble = 'Cannot look after the way of pods through the node'
  readonly quietMs = 50
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #repairs: Repairs
  #known: LastLook = NOTHING
  #pods: readonly Pod[] = []
  /** The links by which packets of pods come to the node. */
  #entrances: ReadonlySet<string> = new Set()
  #ruleset: Ruleset = NO_CHAINS
  #looks = 0
  #counters = { reading: readCounters(), at: performance.now() }
  readonly #forwarded = new Set<'v4' | 'v6'>()
  #hadDefault = false

  constructor(context: Context, now: NodeState, queue: Queue, repairs: Repairs) {
    this.#context = context
    this.#now = now
    this.queue = queue
    this.#repairs = repairs
  }

  /**
   * Looks at settings and the default route every four seconds until the signal, and at the folders of networks and
   * plugins when they change. `foldersChanged` is called then.
   */
  watch(signal: AbortSignal, foldersChanged: () => void): void {
    const { dirs } = this.#context.networks
    const changed = () => {
      this.queue.add('networks', LINKS_MS)
      foldersChanged()
    }
    void watchFolders(dirs, changed, () => {}, FOLDERS_MS, signal)
    const timer = setInterval(() => this.#look(false), LOOK_MS)
    signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  }

  /** Triggers the part when an event may be about the links of pods. */
  heard({ kind, gone, resource }: Event): void {
    const isPodLink = (name: string) => this.#isKnown(name) || name.startsWith('veth')
    const isUplink = resource.kind === 'link' && resource.name === this.#now.choice?.uplink.name
    const isLink = resource.kind === 'link' && (gone || !resource.up || isPodLink(resource.name))
    const isAddress = kind === 'addr' && resource.kind === 'addr' && this.#isKnown(resource.dev)
    // Of a routed pod.
    const isWay = gone && (resource.kind === 'addr' || resource.kind === 'route') && isPodLink(resource.dev)
    if (isUplink || isLink || isAddress || isWay) this.queue.add('links', LINKS_MS)
  }

  /** Triggers the part when a chain of another program may have changed. */
  ruleHeard({ family, table, what, chain }: RuleChange): void {
    if (what === 'other' || family === undefined || this.#isOwn(table)) return
    // kube-proxy and portmap change chains of their own there with each Service and each pod.
    if (family !== 'inet' && table === 'nat' && /^(KUBE|CNI)-/.test(chain ?? '')) return
    this.queue.add('rules', RULES_MS)
  }

  async step(why: readonly string[]): Promise<Outcome> {
    if (!this.#now.served) return WAITING
    const { lost, isBusy } = await this.#links()
    this.#context.failures.report('links of pods', lost)
    if (why.some((one) => !WITHOUT_CHAINS.includes(one))) this.#ruleset = await this.#chains()
    this.#look(true)
    // A call of a plugin ends without an event.
    if (isBusy) this.queue.add('links', BUSY_MS)
    return lost.length > 0 ? { isIncomplete: true } : DONE
  }

  #isKnown(name: string): boolean {
    return this.#known.bridges.has(name)
  }

  #isOwn(table: string): boolean {
    const { firewall } = this.#context
    return OWN_TABLES.includes(table) || table === firewall.table || table === firewall.tunnels.table
  }

  #look(isDue: boolean): void {
    const { served } = this.#now
    if (!served) return
    this.#keepForwarding(served.subnets)
    if (isDue || this.#now.findings.length > 0 || this.#looks++ % EXAMINED_EVERY === 0)
      this.#now.findings = examine(this.#facts(served.subnets), AGENT_CHECKS).findings
    const failures = this.#now.findings.map((one): Failure => {
      const scope = AGENT_CHECKS.find(({ code }) => code === one.code)?.inAgent ?? 'part'
      return { scope, text: sentenceOf(one) }
    })
    const hasDefault = defaultDevice() !== undefined
    this.#hadDefault ||= hasDefault
    const effect = 'its pods reach nobody outside the network; run ip route add default via GATEWAY'
    const lost: Failure = { scope: 'part', text: `This node has lost its default route: ${effect}` }
    this.#context.failures.report('checks', failures)
    this.#context.failures.report('default route', this.#hadDefault && !hasDefault ? [lost] : [])
  }

  // The doctor names a setting that stays off because nobody may set it.
  #keepForwarding(subnets: Both<Cidr>): void {
    this.#keepFamilies(subnets)
    if (!subnets.v4) return
    const { backend, options } = this.#context
    const uplink = this.#now.choice?.uplink.name
    // Another program may have switched off a link alone. A new link of a hardened node begins like this.
    for (const link of new Set([...(uplink ? [uplink] : []), ...backend.links(options), ...this.#entrances])) {
      const name = `ipv4/conf/${link}/forwarding`
      if (maybeSysctl(name) !== '0') continue
      const title = `net.ipv4.conf.${link.replaceAll('.', '/')}.forwarding`
      try {
        writeSysctl(name, '1')
        this.#repairs.note(this, 'sysctl', [{ key: title, title }])
      } catch {
        // As below.
      }
    }
  }

  #keepFamilies(subnets: Both<Cidr>): void {
    for (const family of ['v4', 'v6'] as const) {
      const [name, value] = [FORWARDING[family], subnets[family] && maybeSysctl(FORWARDING[family])]
      if (value === '1') this.#forwarded.add(family)
      // Forwarding of IPv6 changes how the node takes router advertisements. It begins with a pod (plugin bridge).
      if (value !== '0' || (family === 'v6' && !this.#forwarded.has('v6'))) continue
      const title = sysctlName(name)
      try {
        writeSysctl(name, '1')
      } catch {
        continue
      }
      if (this.#forwarded.has(family)) this.#repairs.note(this, 'sysctl', [{ key: title, title }])
      else log(`agent: set ${title} to 1: the node forwards what pods send`)
      this.#forwarded.add(family)
    }
  }

  // The facts since the last look.
  #facts(subnets: Both<Cidr>): ReturnType<typeof factsOfAgent> {
    const { choice, services, policy, mtu } = this.#now
    const { node, backend, conf } = this.#context
    const agent: AgentFacts = {
      node,
      network: { ...(conf.v4 && { v4: conf.v4.network }), ...(conf.v6 && { v6: conf.v6.network }) },
      subnets,
      backend: backend.type,
      mtu,
      uplink: choice && { ...choice.uplink, why: choice.why },
      ...(services && { services }),
      ...(policy && { policy }),
    }
    const { reading, at } = this.#counters
    const before = { reading, ms: performance.now() - at }
    this.#counters = { reading: readCounters(), at: performance.now() }
    // At its start the agent installs the network last.
    const lists = () => (this.#now.isSynced ? this.#context.networks.read() : undefined)
    return factsOfAgent({ agent, pods: this.#pods, ruleset: this.#ruleset, lists, before })
  }

  async #links(): Promise<{ readonly lost: readonly Failure[]; readonly isBusy: boolean }> {
    const all = entries()
    this.#pods = podsOf(all)
    this.#entrances = this.#pods.length === 0 ? new Set() : entrancesOf(this.#pods, readLinksNow())
    if (all.length === 0) {
      this.#known = NOTHING
      return { lost: [], isBusy: false }
    }
    const addressesOf = (index: number) =>
      addressesNow(index).flatMap(({ cidr, scope }) => (scope === RT_SCOPE_LINK ? [] : [cidr]))
    const subnets = both(this.#now.served?.subnets ?? {})
    const { changes, mended, lost, known } = checkPodLinks({
      entries: all,
      links: linksNow(),
      addressesOf,
      heldBy: (index) => addressesNow(index).map(({ cidr }) => cidr),
      towards: linkTowards,
      isThere,
      known: this.#known,
      subnets,
    })
    if (mended.length > 0 && !this.#repairs.isHeld(this)) {
      const failed = await this.#context.converger.mend(changes)
      // A DEL may have removed a link since it was seen.
      const others = [...failed].filter(([, said]) => !/^(Cannot find|No such)/.test(said))
      if (others.length > 0) throw new ValueError(sentences(new Map(others)).join('; '))
      if (failed.size === 0) this.#repairs.ofPart(this, 'link', mended)
      else this.queue.add('links', BUSY_MS)
    }
    this.#known = known
    return {
      lost: lost.map((text): Failure => ({ scope: 'part', text })),
      isBusy: all.some(({ unfinished }) => unfinished),
    }
  }

  // Without nft the parts that load rules say so.
  #chains(): Promise<Ruleset> {
    return readRuleset(this.#context.run).catch(() => NO_CHAINS)
  }
}
