import { log } from '../../lib/os/log.ts'
import { chainUses, generation, isInForce, isThere, ruleCounts } from '../../lib/os/nftables.ts'
import { localAddresses } from '../../lib/os/routes.ts'
import type { Run } from '../../lib/os/run.ts'
import { readSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { ChangedKeys, Changes } from '../cluster/changes.ts'
import type { KindName } from '../cluster/kinds.ts'
import type { Protocol } from '../cluster/reading.ts'
import type { Slice } from '../cluster/services.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { dumpElements } from '../kernel/element-dump.ts'
import { Elements, type Stepped } from '../kernel/elements.ts'
import { both } from '../lease/families.ts'
import type { Translated } from '../policy/view.ts'
import { type Durations, noDurations, withDuration } from '../scheduler/durations.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Queue } from '../scheduler/queue.ts'
import { addressesOf } from '../services/addresses.ts'
import { type CompiledService, compile } from '../services/compile.ts'
import { allUdp, forgetStale, formerUdp, StaleFrontends, staleOf } from '../services/conntrack.ts'
import type { NodeFacts } from '../services/endpoints.ts'
import { HealthServers, Progress } from '../services/health.ts'
import { LoopbackPorts } from '../services/loopback-ports.ts'
import { type Reached, ReachedAddresses } from '../services/reached.ts'
import {
  ADDRESS_SETS,
  addition,
  addressLines,
  baseChains,
  type Chain,
  declaration,
  isOnLoopback,
  LOCALNET,
  MARTIANS,
  SHAPES,
  SOURCES,
  shapeChains,
  sources,
  TABLE,
} from '../services/table.ts'
import { type ServiceView, viewOf } from '../services/view.ts'
import { WantedElements } from '../services/wanted-elements.ts'
import type { NodeState } from '../state/condition.ts'
import { PROGRAMMING_BUCKETS, type ServicesSync, SYNC_BUCKETS } from '../state/status.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

/** The kinds of objects that Services are about. The Node of this name gives the zone. */
export const SERVICE_KINDS = ['services', 'slices', 'nodes', 'serviceCidrs'] as const satisfies readonly KindName[]
/** Services are served without the others. */
const NEEDED = ['services', 'slices', 'nodes'] as const satisfies readonly KindName[]
const ZONE = 'topology.kubernetes.io/zone'
/** Nodes with this label serve no clients from outside (Kubernetes, KEP 1143). */
const EXCLUDED = 'node.kubernetes.io/exclude-from-external-load-balancers'
/** Refused objects that the status names at once. */
const NAMED = 20

/** The most elements in one transaction. A quarter of a million endpoints would else take nft 600 MB. */
const MOST = 50_000

/** The lines that take the table away, if it is there. */
const AWAY = [`table inet ${TABLE}`, `delete table inet ${TABLE}`]
const INTERVALS = [4, 6].flatMap((family) => [
  ...ADDRESS_SETS.map((set) => [TABLE, `${set}${family}`] as const),
  ...['restricted', 'allowed'].map((set) => [SOURCES, `${set}${family}`] as const),
])
/** How often sets with intervals are written again while other programs have their turns. */
const TRIES = 5
/** When a port that another program had, or a look at connections that failed, is tried again. Milliseconds. */
const AGAIN_MS = 5000
/** Chains that no element leads to are removed when there are more. */
const SPARE = 100

/** The addresses of a node that serves no clients from outside. */
const NOWHERE: Reached = new Map()

/** The maps with one element per endpoint of a frontend. */
const ENDPOINT_MAPS = Object.keys(SHAPES).filter((name) => /^(port)?(eps|sel)/.test(name))

/** The way to add lines to a broken or unknown table: over the existing one, or after its removal. */
type Way = 'step' | 'over' | 'anew'

/** Keeps Services in the kernel. The tables stay when the agent ends, and connections never notice. */
export class ServicesPart implements Part {
  readonly name = 'services'
  readonly trouble = 'Cannot program Services'
  readonly quietMs: number
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #objects: ObjectSource
  readonly #repairs: Repairs
  readonly #changes: Changes
  readonly #elements = new Elements(TABLE, SHAPES, { most: MOST })
  readonly #wanted = new WantedElements(this.#elements)
  readonly #progress = new Progress()
  readonly #health: HealthServers
  readonly #base: ReadonlyMap<string, Chain>
  readonly #loopback = new LoopbackPorts((failures) => {
    this.#context.failures.report('NodePorts on ::1', failures)
    if (failures.length > 0) this.queue.add('ports', AGAIN_MS)
  })
  readonly #isOnLoopback: boolean
  readonly #given: NonNullable<Context['services']>
  /** The slices of each Service, by keys, and the Service of each slice. */
  readonly #slices = new Map<string, Set<string>>()
  readonly #owners = new Map<string, string>()
  /** The chains that the kernel has. Undefined before the first step. */
  #chains: Map<string, Chain> | undefined
  /**
   * The source ranges in the kernel: their version among the wanted elements, and whether there are any. The text for addresses
   * of pods.
   */
  #sources = { version: 0, isAny: false }
  #addresses = ''
  #isStale = true
  /** The kernel has chains that could not be removed. */
  #isUnusedLeft = false
  /** What the kernel had of the sets and chains below `contentOfIntervals` after this agent wrote them. */
  #intervals: string | undefined
  /** The transaction that nft refused last. */
  #refused: string | undefined
  #node: NodeFacts
  /** UDP frontends whose connections are not looked at yet. */
  readonly #stale = new StaleFrontends()
  #isForgetting = false
  /**
   * When the changes of slices happened that are not in the kernel yet: the first one of each slice. Milliseconds since
   * 1970.
   */
  readonly #triggered = new Map<string, number>()
  readonly #reached = new ReachedAddresses()
  /** This node serves clients from outside. Undefined before the first step. */
  #isForOutside: boolean | undefined
  #reachedChanged = () => {}
  #programming: Durations = noDurations(PROGRAMMING_BUCKETS)
  #sync: ServicesSync = { took: noDurations(SYNC_BUCKETS), services: 0, slices: 0 }
  #forgotten = 0

  constructor(
    context: Context,
    now: NodeState,
    objects: ObjectSource,
    options: NonNullable<Context['services']>,
    queue: Queue,
    repairs: Repairs,
  ) {
    this.#context = context
    this.#now = now
    this.#objects = objects
    this.queue = queue
    this.#repairs = repairs
    this.quietMs = context.quietMs
    this.#node = { name: context.node }
    this.#base = baseChains(options)
    this.#given = options
    const isLeaving = () => objects.objects.nodes.get(context.node)?.isLeaving === true
    this.#health = new HealthServers(options.health, this.#progress, isLeaving)
    this.#changes = objects.changes(SERVICE_KINDS, () => {
      this.#progress.changed()
      this.#sync = { ...this.#sync, queuedAt: Date.now() }
      queue.add('objects')
    })
    this.#isOnLoopback = isOnLoopback(options, 6)
  }

  invalidate(): void {
    this.#isStale = true
    this.#elements.invalidate()
  }

  /** The Services as people see them, sorted by name. `announced`: the addresses that this node announces by BGP. */
  view(announced?: ReadonlySet<Ip>): ServiceView[] {
    const { services } = this.#objects.objects
    const conflicts = Map.groupBy(this.#wanted.conflicts, ({ loser }) => loser)
    return [...services.entries()]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, service]) => viewOf(service, this.#slicesOf(key), this.#node, announced, conflicts.get(key)))
  }

  /** Where the rules lead packets to this address and port. Undefined when they leave the packets alone. */
  translate(ip: Ip, protocol: Protocol, port: number): Translated | undefined {
    const [family, word] = [isSix(ip) ? (6 as const) : (4 as const), protocol.toLowerCase()]
    const { served } = this.#wanted
    const vip = served.get(`vip${family} ${ip} . ${word} . ${port}`)
    const nodePort = localAddresses(family).has(ip) ? served.get(`port${family} ${word} . ${port}`) : undefined
    const what = `${ip} port ${port}/${protocol}`
    const frontend = vip ?? nodePort
    if (frontend)
      return {
        what: `${what} is ${vip ? "a Service's" : 'a NodePort'}`,
        endpoints: [...new Set([...frontend.cluster, ...frontend.local])].map(endpointAt),
      }
    // Ports of a ClusterIP that the Service does not have are refused.
    if (this.#wanted.isClusterIP(ip)) return { what: `${what} is no port of the Service`, endpoints: [] }
    const isUnallocated = this.#addressesNow().clusterIPs?.some((network) => contains(network, ip))
    return isUnallocated ? { what: `${ip} is a ClusterIP of no Service`, endpoints: [] } : undefined
  }

  /**
   * The addresses at which this node serves clients from outside. Undefined before the first step. One that this node
   * begins to serve comes when the kernel has it, and one that ends goes before the kernel loses it.
   */
  get reached(): Reached | undefined {
    if (this.#isForOutside === undefined) return undefined
    return this.#isForOutside ? this.#reached.all : NOWHERE
  }

  /** Calls `changed` after each change of `reached`. */
  onReached(changed: () => void): void {
    this.#reachedChanged = changed
  }

  /** Ends the servers of healthCheckNodePort, and those of NodePorts on ::1. */
  close(): void {
    this.#health.close()
    this.#loopback.close()
  }

  async step(): Promise<Outcome> {
    // The table of an earlier run stays until everything is known.
    const trouble = this.#objects.trouble(NEEDED)
    this.#now.unknownObjects = { ...this.#now.unknownObjects, services: trouble }
    if (!this.#objects.isComplete(NEEDED)) {
      const failures: Failure[] = trouble === undefined ? [] : [{ scope: 'node', text: trouble }]
      this.#context.failures.report('objects of services', failures)
      return WAITING
    }
    await this.#progress.during(() => this.#update())
    const refused = this.#objects.refused(SERVICE_KINDS).slice(0, NAMED)
    const closed = this.#health.update(this.#wanted.health)
    if (closed.length > 0) this.queue.add('ports', AGAIN_MS)
    const texts = [
      ...(trouble === undefined ? [] : [`${trouble}; the last known objects are programmed`]),
      ...refused.map((text) => `${text}; the other objects are programmed`),
      ...closed,
    ]
    const failures = texts.map((text): Failure => ({ scope: 'part', text }))
    this.#context.failures.report('objects of services', failures)
    this.#reportAddresses()
    return DONE
  }

  #reportAddresses(): void {
    const texts = [...new Set(this.#wanted.conflicts.map(({ text }) => text))]
    const more = texts.length > NAMED ? [`${texts.length - NAMED} more: plumb services names them`] : []
    const failures = [...texts.slice(0, NAMED), ...more, ...this.#addressesNow().problems]
    this.#context.failures.report(
      'addresses of services',
      failures.map((text): Failure => ({ scope: 'part', text })),
    )
  }

  // The networks of this node's pods, and of all pods.
  #pods(): { readonly own: Cidr[]; readonly inside: Cidr[] } {
    // Before the lease of this run is known, the pods have the addresses of the one before.
    const lease = this.#now.served ?? this.#now.lease
    const own = both(lease?.subnets ?? this.#context.before ?? {})
    return { own, inside: [...new Set([...own, ...this.#context.facts.networks, ...this.#given.clusterCidrs])] }
  }

  #addressesNow(): ReturnType<typeof addressesOf> {
    const { serviceCidrs } = this.#objects.objects
    return addressesOf({
      options: this.#given,
      objects: this.#objects.isComplete(['serviceCidrs']) ? serviceCidrs.values() : undefined,
      trouble: this.#objects.trouble(['serviceCidrs']),
      pods: this.#context.facts.networks,
      node: this.#node,
      uplink: both(this.#now.choice?.uplink.tunnel ?? {}),
    })
  }

  // Takes the changes of objects to the kernel.
  async #update(): Promise<void> {
    const isFirst = this.#chains === undefined
    const [keys, began] = [this.#changes.take(), performance.now()]
    const changed = this.#compileChanged(keys)
    this.#stale.note(isFirst ? allUdp(this.#wanted.served.values()) : staleOf(changed.values()))
    this.#reached.note(changed.values())
    const isForOutside = this.#objects.objects.nodes.get(this.#context.node)?.labels[EXCLUDED] === undefined
    if (this.#reached.shrink() || (this.#isForOutside && !isForOutside)) {
      this.#isForOutside &&= isForOutside
      this.#reachedChanged()
    }
    const inherited = await this.#program(isFirst)
    if (this.#reached.grow() || this.#isForOutside !== isForOutside) {
      this.#isForOutside = isForOutside
      this.#reachedChanged()
    }
    this.#stale.note(formerUdp(inherited, this.#wanted.served))
    // What happened before the start was not this run's to wait for.
    for (const at of isFirst ? [] : this.#triggered.values())
      this.#programming = withDuration(this.#programming, Math.max(0, (Date.now() - at) / 1000), PROGRAMMING_BUCKETS)
    this.#triggered.clear()
    this.#noteSync(keys, began)
    this.#publish()
    void this.#forgetStale()
  }

  #noteSync(keys: ChangedKeys, began: number): void {
    const { took, services, slices, ...times } = this.#sync
    this.#sync = {
      ...times,
      // A step without changes looked only whether the kernel still has everything.
      took: keys.size === 0 ? took : withDuration(took, (performance.now() - began) / 1000, SYNC_BUCKETS),
      doneAt: Date.now(),
      services: services + (keys.get('services')?.size ?? 0),
      slices: slices + (keys.get('slices')?.size ?? 0),
    }
  }

  // Runs beside the steps: cleaning never delays programming.
  async #forgetStale(): Promise<void> {
    if (this.#isForgetting) return
    this.#isForgetting = true
    const what = 'UDP connections to former endpoints of Services'
    const report = (failures: Failure[]) => this.#context.failures.report('connections of services', failures)
    try {
      while (this.#stale.size > 0) {
        const stale = this.#stale.take()
        try {
          const forgotten = await forgetStale(stale, this.#pods().inside)
          this.#forgotten += forgotten
          if (forgotten > 0) log(`agent: forgot ${forgotten} ${what}`)
          report([])
        } catch (cause) {
          this.#stale.giveBack(stale)
          report([{ scope: 'part', text: `Cannot forget ${what}: ${(cause as Error).message}` }])
          this.queue.add('connections', AGAIN_MS)
          return
        }
      }
      this.#publish()
    } finally {
      this.#isForgetting = false
    }
  }

  // Compiles the Services whose objects changed.
  #compileChanged(keys: ChangedKeys): ReturnType<WantedElements['update']> {
    const { services, slices, nodes } = this.#objects.objects
    const dirty = new Set(keys.get('services'))
    for (const key of keys.get('slices') ?? []) {
      const slice = slices.get(key)
      if (slice === undefined) this.#triggered.delete(key)
      else if (slice.triggeredAt !== undefined && !this.#triggered.has(key)) this.#triggered.set(key, slice.triggeredAt)
      const [before, owner] = [this.#owners.get(key), slice && `${slice.namespace}/${slice.service}`]
      for (const one of [before, owner]) if (one !== undefined) dirty.add(one)
      if (before !== undefined && before !== owner) this.#slices.get(before)?.delete(key)
      if (owner === undefined) this.#owners.delete(key)
      else {
        this.#owners.set(key, owner)
        this.#slices.set(owner, (this.#slices.get(owner) ?? new Set()).add(key))
      }
    }
    const { labels, ips } = nodes.get(this.#context.node) ?? {}
    const node = {
      name: this.#context.node,
      ...(labels?.[ZONE] !== undefined && { zone: labels[ZONE] }),
      ...(ips && { ips }),
    }
    if (!Bun.deepEquals(node, this.#node)) {
      this.#node = node
      for (const key of services.keys()) dirty.add(key)
    }
    const next = new Map<string, CompiledService | undefined>()
    for (const key of dirty) {
      const service = services.get(key)
      next.set(key, service && compile(service, this.#slicesOf(key), this.#node, this.#wanted.of(key)))
      if (this.#slices.get(key)?.size === 0) this.#slices.delete(key)
    }
    return this.#wanted.update(next)
  }

  #slicesOf(service: string): Slice[] {
    const { slices } = this.#objects.objects
    return [...(this.#slices.get(service) ?? [])].sort().flatMap((one) => slices.get(one) ?? [])
  }

  #publish(): void {
    const endpoints = ENDPOINT_MAPS.reduce((sum, name) => sum + this.#elements.size(name), 0)
    this.#now.services = {
      services: this.#wanted.all.size,
      frontends: this.#wanted.served.size,
      endpoints,
      programming: this.#programming,
      forgotten: this.#forgotten,
      sync: this.#sync,
    }
  }

  // One transaction, with chains and addresses where they are not as the last one left them. Gives the elements that an
  // earlier run left and nobody wants so.
  async #program(isFirst: boolean): Promise<readonly string[]> {
    const wanted = new Map(this.#base)
    for (const shape of this.#wanted.shapes()) for (const [name, chain] of shapeChains(shape)) wanted.set(name, chain)
    const wasStale = this.#isStale
    const wrong = wasStale ? this.#look() : undefined
    const way: Way = isFirst || wrong !== undefined ? 'over' : 'step'
    this.#isStale = false
    const { repaired, inherited } = await this.#commit(wanted, way).catch(async (cause) => {
      this.#isStale = true
      if (way === 'step' || !(await this.#isTableWrong(wanted))) throw cause
      return this.#commit(wanted, 'anew')
    })
    // The kernel never takes packets for 127.0.0.0/8 from other links without the chain that drops them.
    if (wanted.has(MARTIANS) && (isFirst || wasStale)) this.#takeLocalnet(isFirst)
    await this.#removeUnused(wanted, way)
    if (this.#isOnLoopback) this.#loopback.update(this.#wanted.nodePorts.values())
    const titles = [
      ...(wrong !== undefined && !isFirst ? [wrong] : []),
      ...repaired.map((text) => `nft table ${TABLE}, ${text}`),
    ]
    if (titles.length > 0) this.#repairs.ofPart(this, 'nft', titles)
    return inherited
  }

  // The table of another version may have sets of other types. nft then refuses the same transaction again, and takes
  // the declaration instead of that table. Any other failure, such as a lack of memory, leaves the table that works.
  // Both are checks, which change nothing.
  async #isTableWrong(wanted: ReadonlyMap<string, Chain>): Promise<boolean> {
    const isTaken = async (script: string) => (await this.#context.run(['nft', '-c', '-f', '-'], script)).status === 0
    const script = this.#refused
    this.#refused = undefined
    if (script === undefined || (await isTaken(script))) return false
    return isTaken([...AWAY, ...declaration(wanted), ''].join('\n'))
  }

  // What is wrong with tables and chains, by the kernel's count of rules.
  #look(): string | undefined {
    if (!isInForce('inet', TABLE)) return `nft table ${TABLE}`
    if (this.#sources.isAny && !isThere('inet', SOURCES)) return `nft table ${SOURCES}`
    // Without transactions of others nobody changed them.
    if (this.#intervals !== undefined && this.#elements.mayDiffer && contentOfIntervals() !== this.#intervals)
      return `nft table ${SOURCES}, or addresses of pods in nft table ${TABLE}`
    const counts = ruleCounts('inet', TABLE)
    const wrong = [...(this.#chains ?? [])].find(([name, { rules }]) => (counts.get(name) ?? 0) !== rules.length)
    return wrong && `nft table ${TABLE}, chain ${wrong[0]}`
  }

  async #commit(wanted: Map<string, Chain>, way: Way): Promise<Stepped> {
    const fresh = new Map([...wanted].filter(([name]) => !this.#chains?.has(name)))
    const addresses = addressLines({ ...this.#pods(), ...this.#addressesNow() }).join('\n')
    const hasOtherAddresses = addresses !== this.#addresses
    const isWhole = way !== 'step'
    const { sourcesVersion } = this.#wanted
    const restricted = isWhole || sourcesVersion !== this.#sources.version ? this.#wanted.sources() : undefined
    const before = [
      ...(way === 'anew' ? AWAY : []),
      ...(isWhole ? declaration(wanted) : addition(fresh)),
      ...(isWhole || hasOtherAddresses ? [addresses] : []),
      ...(restricted ? sources(restricted) : []),
    ]
    if (way === 'anew' || (isWhole && !isThere('inet', TABLE))) this.#elements.forget()
    this.#refused = undefined
    const run: Run = async (argv, script) => {
      const output = await this.#context.run(argv, script)
      if (output.status !== 0) this.#refused = script
      return output
    }
    const stepped = await this.#elements.step(run, { before })
    // A chain that no element leads to costs nothing, and the next change may need it.
    this.#chains = new Map([...(isWhole ? [] : (this.#chains ?? [])), ...wanted])
    if (isWhole || restricted || hasOtherAddresses) this.#intervals = await this.#writtenIntervals(addresses)
    this.#addresses = addresses
    if (restricted) this.#sources = { version: sourcesVersion, isAny: restricted.size > 0 }
    return stepped
  }

  // The content of the sets with intervals, as this agent wrote it. What another program does before the look would count
  // as this agent's own. So after any transaction in between, the sets are written again.
  async #writtenIntervals(addresses: string): Promise<string> {
    let [content, isOwn] = [contentOfIntervals(), this.#elements.isLast]
    const lines = [addresses, ...sources(this.#wanted.sources()), '']
    for (let tries = 0; !isOwn && tries < TRIES; tries++) {
      const before = generation()
      const { status } = await this.#context.run(['nft', '-f', '-'], lines.join('\n'))
      content = contentOfIntervals()
      isOwn = status === 0 && (before === undefined || generation() === before + 1)
    }
    return content
  }

  #takeLocalnet(isFirst: boolean): void {
    if (readSysctl(LOCALNET) === '1' || !writeSysctl(LOCALNET, '1')) return
    const name = sysctlName(LOCALNET)
    if (isFirst) log(`agent: set ${name} to 1 for NodePorts on 127.0.0.1; other links are kept from 127.0.0.0/8 by nft`)
    else this.#repairs.note(this, 'sysctl', [{ key: name, title: name }])
  }

  // Chains of an earlier run, and those of shapes that Services once had. In a transaction of their own: nothing leads
  // to them any more. A failure holds back nothing, and the next time is another try.
  async #removeUnused(wanted: ReadonlyMap<string, Chain>, way: Way): Promise<void> {
    const isKnown = way === 'step' && !this.#isUnusedLeft
    const there = isKnown ? this.#chains : chainUses('inet', TABLE)
    const unused = [...(there?.keys() ?? [])].filter((name) => !wanted.has(name))
    if (unused.length <= (isKnown ? SPARE : 0)) return
    if (unused.includes(MARTIANS)) writeSysctl(LOCALNET, '0')
    const lines = [
      ...unused.map((name) => `flush chain inet ${TABLE} ${name}`),
      ...unused.map((name) => `delete chain inet ${TABLE} ${name}`),
    ]
    const { status, stderr } = await this.#context.run(['nft', '-f', '-'], `${lines.join('\n')}\n`)
    this.#isUnusedLeft = status !== 0
    if (status === 0) this.#chains = new Map([...(this.#chains ?? [])].filter(([name]) => wanted.has(name)))
    const text = `Cannot remove unused chains of nft table ${TABLE}: ${stderr.split('\n', 1)[0]}`
    this.#context.failures.report('chains of services', status === 0 ? [] : [{ scope: 'part', text }])
  }
}

// Sets with intervals, which `Elements` does not have, and the rules that use source ranges: as the kernel gives them.
function contentOfIntervals(): string {
  const linesOf = (pairs: Iterable<readonly unknown[]>) => [...pairs].map((pair) => pair.join(' ')).sort()
  const sets = INTERVALS.map(([table, set]) => linesOf(dumpElements(table, set)))
  return JSON.stringify([...sets, linesOf(ruleCounts('inet', SOURCES))])
}

// nft's text `10.1.0.2 . 8080`.
function endpointAt(text: string): { readonly ip: Ip; readonly port: number } {
  const [ip = '', port] = text.split(' . ')
  return { ip: ip as Ip, port: Number(port) }
}
