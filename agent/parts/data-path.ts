import { entries, isThere } from '../../lib/journal/journal.ts'
import { failures } from '../../lib/os/iproute2.ts'
import { addressesNow, RT_SCOPE_LINK } from '../../lib/os/link-addresses.ts'
import { linksNow } from '../../lib/os/links.ts'
import { log } from '../../lib/os/log.ts'
import { linkTowards } from '../../lib/os/route-tables.ts'
import { defaultDevice } from '../../lib/os/routes.ts'
import { maybeSysctl, writeSysctl } from '../../lib/os/sysctls.ts'
import { isOverlay } from '../../lib/state/kinds/overlay.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { ExecError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { drops, type Expression, type ForwardChain, type Forwarded } from '../checks/forward-chains.ts'
import { checkPodLinks, type Known, NOTHING } from '../checks/pod-links.ts'
import type { NodeState } from '../health/condition.ts'
import type { Event } from '../kernel/events.ts'
import type { RuleChange } from '../kernel/rule-events.ts'
import { both } from '../lease/families.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import { TABLE as SERVICES_TABLE, SOURCES } from '../services/table.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

/**
 * How often settings and the default route are looked at, in milliseconds. The kernel tells nobody of settings. A look
 * reads four small files.
 */
const LOOK_MS = 4000
/**
 * When a change of a pod's link, and when one of a chain, is looked at. An ADD or another program may be at work.
 * Milliseconds.
 */
const [LINKS_MS, RULES_MS, BUSY_MS] = [500, 2000, 1000]
const FORWARDING = { v4: 'ipv4/ip_forward', v6: 'ipv6/conf/all/forwarding' } as const
const OWN_TABLES: readonly string[] = [POLICY_TABLE, SERVICES_TABLE, SOURCES, GUARD, 'plumb']

/**
 * Keeps the way of pods' packets through this node: forwarding, the links of pods and their bridge. What plumb made or
 * set comes back. Anything else that stops packets is a failure: a chain of another program, a lost default route, a
 * link that is gone.
 */
export class DataPathPart implements Part {
  readonly name = 'data path'
  readonly trouble = 'Cannot look after the way of pods through the node'
  readonly quietMs = 50
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #repairs: Repairs
  #known: Known = NOTHING
  readonly #forwarded = new Set<'v4' | 'v6'>()
  #hadDefault = false

  constructor(context: Context, now: NodeState, queue: Queue, repairs: Repairs) {
    this.#context = context
    this.#now = now
    this.queue = queue
    this.#repairs = repairs
  }

  /** Looks at settings and the default route every four seconds until the signal. */
  watch(signal: AbortSignal): void {
    const timer = setInterval(() => this.#look(), LOOK_MS)
    signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  }

  /** Triggers the part when an event may be about the links of pods. */
  heard({ kind, gone, resource }: Event): void {
    const isPodLink = (name: string) => this.#isKnown(name) || name.startsWith('veth')
    const isLink = resource.kind === 'link' && (gone || !resource.up || isPodLink(resource.name))
    const isAddress = kind === 'addr' && resource.kind === 'addr' && this.#isKnown(resource.dev)
    // Of a routed pod.
    const isWay = gone && (resource.kind === 'addr' || resource.kind === 'route') && isPodLink(resource.dev)
    if (isLink || isAddress || isWay) this.queue.add('links', LINKS_MS)
  }

  /** Triggers the part when a chain of another program may have changed. */
  ruleHeard({ family, table, what }: RuleChange): void {
    if (what === 'other' || family === undefined || this.#isOwn(table)) return
    // The tables of iptables with this name have no hook where packets are forwarded, or none that drops.
    if (family !== 'inet' && table === 'nat') return
    this.queue.add('rules', RULES_MS)
  }

  async step(why: readonly string[]): Promise<Outcome> {
    if (!this.#now.served) return WAITING
    this.#look()
    const { lost, isBusy } = await this.#links()
    this.#context.failures.report('links of pods', lost)
    const isMore = why.some((one) => one !== 'links' && one !== 'retry')
    if (isMore || this.#context.failures.all().some(({ text }) => text.startsWith(DROPS)))
      this.#context.failures.report('chains of others', await this.#chains())
    // A call of a plugin ends without an event.
    if (isBusy) this.queue.add('links', BUSY_MS)
    return lost.length > 0 ? { isIncomplete: true } : DONE
  }

  #isKnown(name: string): boolean {
    return this.#known.bridges.has(name)
  }

  #isOwn(table: string): boolean {
    return OWN_TABLES.includes(table) || table === this.#context.firewall.table
  }

  #look(): void {
    const { served } = this.#now
    if (!served) return
    const failures: Failure[] = []
    for (const family of ['v4', 'v6'] as const) {
      const [name, value] = [FORWARDING[family], served.subnets[family] && maybeSysctl(FORWARDING[family])]
      if (value === '1') this.#forwarded.add(family)
      // Forwarding of IPv6 changes how the node takes router advertisements. It begins with a pod (plugin bridge).
      if (value !== '0' || (family === 'v6' && !this.#forwarded.has('v6'))) continue
      const title = `net.${name.replaceAll('/', '.')}`
      try {
        writeSysctl(name, '1')
        if (this.#forwarded.has(family)) this.#repairs.note(this, 'sysctl', [{ key: title, title }])
        else log(`agent: set ${title} to 1: the node forwards what pods send`)
        this.#forwarded.add(family)
      } catch (cause) {
        const why = `${title} is 0, and it cannot be set (${(cause as Error).message})`
        const effect = `pods reach only this node; run sysctl -w ${title}=1`
        failures.push({ scope: 'node', text: `This node does not forward: ${why}: ${effect}` })
      }
    }
    const hasDefault = defaultDevice() !== undefined
    this.#hadDefault ||= hasDefault
    if (this.#hadDefault && !hasDefault) {
      const effect = 'its pods reach nobody outside the network; run ip route add default via GATEWAY'
      failures.push({ scope: 'part', text: `This node has lost its default route: ${effect}` })
    }
    this.#context.failures.report('forwarding', failures)
  }

  async #links(): Promise<{ readonly lost: readonly Failure[]; readonly isBusy: boolean }> {
    const all = entries()
    if (all.length === 0) {
      this.#known = NOTHING
      return { lost: [], isBusy: false }
    }
    const addressesOf = (index: number) =>
      addressesNow(index).flatMap(({ cidr, scope }) => (scope === RT_SCOPE_LINK ? [] : [cidr]))
    const subnets = both(this.#now.served?.subnets ?? {})
    const { lines, mended, lost, known } = checkPodLinks({
      entries: all,
      links: linksNow(),
      addressesOf,
      heldBy: (index) => addressesNow(index).map(({ cidr }) => cidr),
      towards: linkTowards,
      isThere,
      known: this.#known,
      subnets,
    })
    if (lines.length > 0 && !this.#repairs.isHeld(this)) {
      const argv = ['ip', '-force', '-batch', '-']
      const { status, stderr } = await this.#context.run(argv, `${lines.join('\n')}\n`)
      if (status === 0) this.#repairs.ofPart(this, 'link', mended)
      else if (!isOfGone(stderr)) throw new ExecError(argv, undefined, stderr.split('\n', 1)[0] ?? '')
      else this.queue.add('links', BUSY_MS)
    }
    this.#known = known
    return {
      lost: lost.map((text): Failure => ({ scope: 'part', text })),
      isBusy: all.some(({ unfinished }) => unfinished),
    }
  }

  // The chains of other programs that drop what pods send to pods of other nodes.
  async #chains(): Promise<readonly Failure[]> {
    const { facts } = this.#context
    // Without nft the parts that load rules say so.
    const run = (argv: readonly string[]) => this.#context.run(argv, '').catch(() => ({ status: 1, stdout: '' }))
    const listed = await run(['nft', '-j', 'list', 'chains'])
    if (listed.status !== 0) return []
    const rules = new Map<string, Promise<readonly (readonly Expression[])[]>>()
    const list = async (...place: string[]) => {
      const { stdout } = await run(['nft', '-j', 'list', 'chain', ...place])
      return partsOf(stdout).flatMap(({ rule }) => (rule ? [(rule as { expr: Expression[] }).expr] : []))
    }
    const rulesOf = ({ family, table }: ForwardChain) => {
      return (name: string) => {
        const key = `${family} ${table} ${name}`
        const found = rules.get(key) ?? list(family, table, name)
        rules.set(key, found)
        return found
      }
    }
    const failures: Failure[] = []
    for (const { chain } of partsOf(listed.stdout)) {
      const one = chain as ForwardChain | undefined
      if (one?.hook !== 'forward' || one.type !== 'filter' || this.#isOwn(one.table)) continue
      if (!['ip', 'ip6', 'inet'].includes(one.family)) continue
      for (const packet of this.#packets(facts.networks)) {
        if (!(await drops(one, packet, rulesOf(one)))) continue
        const name = `${one.family} ${one.table} ${one.name}`
        const what = `${DROPS}${name} of another program drops packets from ${packet.from} to ${packet.to}`
        const hint = `see nft list chain ${name}, and accept ${packet.to} there`
        failures.push({ scope: 'node', text: `${what}: ${hint}` })
        break
      }
    }
    return failures
  }

  #packets(networks: readonly Cidr[]): Forwarded[] {
    const links = linksNow()
    const uplink = this.#now.choice?.uplink.name
    const namesOf = (found: typeof links) => found.map(({ name }): string => name)
    const ofPods = namesOf(
      links.filter(({ name, kind }) => this.#isKnown(name) || (kind === 'veth' && name.startsWith('veth'))),
    )
    const iif = ofPods.length > 0 ? ofPods : ['cni0']
    const oif = [...(uplink === undefined ? [] : [uplink]), ...namesOf(links.filter(({ kind }) => isOverlay(kind)))]
    return both(this.#now.served?.subnets ?? {}).flatMap((from) =>
      networks.filter((to) => isSix(to) === isSix(from)).map((to) => ({ from, to, iif, oif })),
    )
  }
}

// A DEL may have removed a link since it was seen.
function isOfGone(stderr: string): boolean {
  const { byLine, rest } = failures(stderr)
  return (
    rest === '' && byLine.size > 0 && [...byLine.values()].every((said) => /^(Cannot find|No such) device/.test(said))
  )
}

/** The beginning of the sentence about a chain. */
const DROPS = 'The chain '

function partsOf(text: string): readonly Readonly<Record<string, unknown>>[] {
  try {
    return (JSON.parse(text) as { nftables?: Record<string, unknown>[] }).nftables ?? []
  } catch {
    return []
  }
}
