import { shown, ValueError } from '../lib/errors.ts'
import type { Cidr } from '../lib/ip.ts'
import type { Run } from '../lib/plugin.ts'
import type { Backend, Facts } from './backend.ts'
import type { Converger } from './converge.ts'
import { watchFights } from './fights.ts'
import { passForward } from './forward.ts'
import type { Both, Lease } from './lease.ts'
import { ruleset } from './masquerade.ts'
import type { NetworkConf } from './netconf.ts'
import { BUCKETS, type KindCount, type Peer, type Repair, type Status } from './status.ts'
import { type Draft, OutOfSubnetsError, type Snapshot, StoreError, type SubnetStore, SubnetTakenError } from './store.ts'
import { keepTable } from './table.ts'
import { type Choice, chooseUplink, overlap, see, type Wish } from './uplink.ts'
import type { Wakes } from './wakes.ts'

/** What a reconciler is made of. */
export interface Parts {
  readonly node: string
  readonly version: string
  readonly store: SubnetStore
  readonly conf: NetworkConf
  readonly backend: Backend
  readonly facts: Facts
  readonly converger: Converger
  readonly run: Run
  readonly wakes: Wakes
  readonly wish: Wish
  /** The subnets that this node had before, from subnet.env. */
  readonly before?: Both<Cidr>
  readonly firewall: { readonly table: string; readonly masquerade: boolean; readonly keep: readonly Cidr[]; readonly random: boolean; readonly forward: boolean }
  readonly allowOverlap: boolean
  readonly renewMarginMs: number
  /** Writes subnet.env; called whenever one of these changes, before peers are programmed. */
  leased(lease: Lease, mtu: number): void
  /** Called once, after the first step that left nothing undone. */
  synced(): void
  changed(status: Status): void
  log(text: string): void
}

const [RETRY_MS, LONGEST_RETRY_MS] = [500, 30_000]
const REMEMBERED = 100

/** The agent's one loop: what the store, the kernel and the configuration say, into what the kernel has. Level-triggered: every step starts from everything that is known, and undoes whatever stands in the way. */
export class Reconciler {
  readonly #parts: Parts
  readonly #backendConf: unknown
  readonly #table
  readonly #fights = watchFights()
  readonly #started = Date.now()
  #choice: Choice | undefined
  #lease: Lease | undefined
  #snapshot: Snapshot | undefined
  #published = ''
  #claiming: Promise<void> | undefined
  #claimRetryMs = RETRY_MS
  #uplinkDoubted = true
  #forwardDoubted = true
  #leasedAs = ''
  #fatal: Error | undefined
  #isSynced = false
  #problems: readonly string[] = []
  #failures: readonly string[] = []
  #kinds: Readonly<Record<string, KindCount>> = {}
  #repaired = new Map<string, number>()
  #repairs: Repair[] = []
  #lastError: Repair | undefined
  #steps = { count: 0, sum: 0, buckets: BUCKETS.map(() => 0) }

  constructor(parts: Parts) {
    this.#parts = parts
    this.#backendConf = parts.backend.conf(parts.conf.backend.options)
    this.#table = keepTable(parts.firewall.table)
  }

  /** Takes the leases as they are now; the next step programs them. */
  take(snapshot: Snapshot): void {
    this.#snapshot = snapshot
    const own = this.#lease && snapshot.leases.find((lease) => isSame(lease.subnets, this.#lease?.subnets ?? {}))
    // Gone, or another's address on it: claimed again, and if another has it that says so.
    if (this.#lease && (!own || !isSame(own.ips, this.#lease.ips))) this.#published = ''
    this.#parts.wakes.poke('leases')
  }

  /** Somebody may have changed the uplink, the firewall of others, or our table. */
  doubt(what: 'uplink' | 'forward' | 'table'): void {
    if (what === 'uplink') this.#uplinkDoubted = true
    else if (what === 'forward') this.#forwardDoubted = true
    else this.#table.doubt()
  }

  /** Looks at everything anew with the next step. */
  doubtAll(): void {
    for (const what of ['uplink', 'forward', 'table'] as const) this.doubt(what)
    this.#parts.converger.invalidate()
  }

  /** One step. Throws only what ends the agent: SubnetTakenError, or a configuration that cannot be served. */
  async step(why: readonly string[]): Promise<void> {
    const started = performance.now()
    const failures: string[] = []
    const attempt = async <T>(what: string, work: () => Promise<T>): Promise<T | undefined> => {
      try {
        return await work()
      } catch (cause) {
        if (cause instanceof SubnetTakenError) throw cause
        failures.push(`${what}: ${(cause as Error).message}`)
        return undefined
      }
    }
    if (this.#fatal) throw this.#fatal
    if (this.#uplinkDoubted) await attempt('Cannot choose the uplink', () => this.#look())
    this.#claim()
    const lease = this.#lease
    if (lease && this.#choice) {
      this.#tell(lease)
      const networks = all({ ...(this.#parts.conf.v4 ? { v4: this.#parts.conf.v4.network } : {}), ...(this.#parts.conf.v6 ? { v6: this.#parts.conf.v6.network } : {}) })
      await attempt('Cannot load the firewall rules', () => this.#firewall(networks, lease))
      if (this.#snapshot) await attempt('Cannot program the peers', () => this.#program(lease, this.#snapshot as Snapshot, why, failures))
    }
    this.#finish(started, failures)
  }

  async #look(): Promise<void> {
    const { wish, run, conf, allowOverlap, log } = this.#parts
    const sight = await see(wish, run)
    const choice = chooseUplink(sight, wish, conf)
    const own = this.#parts.backend.links(this.#backendConf)
    for (const pool of [conf.v4, conf.v6]) {
      const meets = pool && !allowOverlap && !this.#choice && overlap(sight, pool.network, own)
      if (meets) throw new ValueError(`Cannot use the network ${pool.network}: it overlaps the route ${meets} of this node; want another "Network", or --allow-overlap`)
    }
    this.#uplinkDoubted = false
    const before = this.#choice?.uplink
    this.#choice = choice
    if (before?.name !== choice.uplink.name || before.index !== choice.uplink.index || !isSame(before.tunnel, choice.uplink.tunnel) || !isSame(before.advertise, choice.uplink.advertise))
      log(`agent: uplink ${choice.uplink.name} ${all(choice.uplink.tunnel).join(' ')}: ${choice.why} mtu=${choice.uplink.mtu}`)
  }

  // Beside the loop: a store that does not answer keeps nothing from being put right.
  #claim(): void {
    const { backend, node, store, conf, wakes, before, log, renewMarginMs } = this.#parts
    const uplink = this.#choice?.uplink
    if (!uplink || this.#claiming) return
    const data = backend.announce(node, uplink, this.#backendConf)
    const wanted = JSON.stringify([uplink.advertise, data])
    const { expires } = this.#lease ?? {}
    const isDue = expires !== undefined && expires - renewMarginMs <= Date.now()
    if (this.#lease && wanted === this.#published && !isDue) return
    const held = this.#lease?.subnets ?? before
    const draft: Draft = { node, ips: uplink.advertise, backend: backend.type, data, ...(held ? { before: held } : {}), ...(this.#lease ? { fixed: true as const } : {}) }
    this.#claiming = (async () => {
      try {
        const lease = await store.claim(draft, conf, AbortSignal.timeout(LONGEST_RETRY_MS))
        if (!this.#lease || !isSame(lease.subnets, this.#lease.subnets)) log(`agent: this node has ${all(lease.subnets).join(' ')}${lease.expires === undefined ? '' : ` until ${new Date(lease.expires).toISOString()}`}`)
        this.#lease = lease
        this.#published = wanted
        this.#claimRetryMs = RETRY_MS
        if (lease.expires !== undefined) wakes.poke('renewal', Math.max(1000, lease.expires - renewMarginMs - Date.now()))
        wakes.poke('lease')
      } catch (cause) {
        if (cause instanceof SubnetTakenError) this.#fatal = cause
        else if (!(cause instanceof StoreError || cause instanceof OutOfSubnetsError)) log(`agent: Cannot claim a subnet: ${(cause as Error).message}`)
        this.#note(`Cannot claim a subnet for node ${shown(node)}: ${(cause as Error).message}`)
        wakes.poke('claim', this.#fatal ? 0 : this.#claimRetryMs * (0.75 + Math.random() / 2))
        this.#claimRetryMs = Math.min(LONGEST_RETRY_MS, this.#claimRetryMs * 2)
      } finally {
        this.#claiming = undefined
      }
    })()
  }

  #tell(lease: Lease): void {
    const mtu = this.#mtu()
    const now = JSON.stringify([lease.subnets, mtu])
    if (now === this.#leasedAs) return
    this.#parts.leased(lease, mtu)
    this.#leasedAs = now
  }

  // Of the families that the network has: one number for the pods' links.
  #mtu(): number {
    const { mtu = 0, tunnel = {} } = this.#choice?.uplink ?? {}
    return this.#parts.backend.mtu(this.#backendConf, mtu, tunnel)
  }

  async #firewall(networks: readonly Cidr[], lease: Lease): Promise<void> {
    const { firewall, run } = this.#parts
    const { table, masquerade, keep, random, forward } = firewall
    const text = ruleset(table, { networks, own: all(lease.subnets), masquerade, keep, random })
    const wasThere = this.#kinds['nft'] !== undefined
    if (await this.#table.ensure(text, run)) {
      if (wasThere) this.#repair('nft', [`nft table ${table}`])
    }
    if (forward && this.#forwardDoubted) {
      const done = await passForward(networks, run)
      this.#forwardDoubted = false
      if (done.length > 0 && this.#isSynced) this.#repair('nft', done)
    }
    this.#kinds = { ...this.#kinds, nft: { wanted: 1, programmed: 1, repaired: this.#repaired.get('nft') ?? 0 } }
  }

  async #program(lease: Lease, snapshot: Snapshot, why: readonly string[], failures: string[]): Promise<void> {
    const { backend, converger, facts, log, wakes } = this.#parts
    const uplink = (this.#choice as Choice).uplink
    const peers = snapshot.leases.filter((one) => !isSame(one.subnets, lease.subnets))
    const { resources, problems } = backend.want(lease, peers, uplink, this.#backendConf, facts)
    this.#problems = problems
    const begun = performance.now()
    const done = await converger.step(resources)
    failures.push(...done.failed)
    for (const [kind, repaired] of Object.entries(done.repaired)) this.#repair(kind, repaired)
    const counts = Object.entries(done.counts).map(([kind, count]) => [kind, { ...count, repaired: this.#repaired.get(kind) ?? 0 }] as const)
    this.#kinds = { ...Object.fromEntries(counts), ...(this.#kinds['nft'] ? { nft: this.#kinds['nft'] } : {}) }
    const again = this.#fights.note(Object.values(done.repaired).flat(), performance.now())
    if (again > 0) wakes.poke('fight', again)
    if (done.changed > 0) log(`agent: reached ${peers.length - problems.length} peers by ${backend.type} on ${uplink.name} changed=${done.changed} took=${Math.round(performance.now() - begun)}ms why=${why.join(',')}`)
  }

  #repair(kind: string, what: readonly string[]): void {
    if (what.length === 0) return
    this.#repaired.set(kind, (this.#repaired.get(kind) ?? 0) + what.length)
    const text = what.length > 3 ? `${what.slice(0, 3).join(', ')} and ${what.length - 3} more` : what.join(', ')
    this.#repairs = [...this.#repairs, { at: Date.now(), what: text }].slice(-REMEMBERED)
    this.#parts.log(`agent: put right what somebody else had changed: ${text}`)
  }

  #note(text: string): void {
    if (this.#lastError?.what !== text) this.#parts.log(`agent: ${text}`)
    this.#lastError = { at: Date.now(), what: text }
  }

  #finish(started: number, failures: readonly string[]): void {
    const { wakes, synced, changed } = this.#parts
    for (const text of failures) this.#note(text)
    this.#failures = failures
    if (failures.length > 0) wakes.poke('retry', 1000)
    const seconds = (performance.now() - started) / 1000
    this.#steps = { count: this.#steps.count + 1, sum: this.#steps.sum + seconds, buckets: this.#steps.buckets.map((n, i) => n + (seconds <= (BUCKETS[i] as number) ? 1 : 0)) }
    if (!this.#isSynced && failures.length === 0 && this.#lease && this.#snapshot) {
      this.#isSynced = true
      synced()
    }
    changed(this.status())
  }

  /** How everything stands. */
  status(): Status {
    const { node, version, backend, conf, store } = this.#parts
    const uplink = this.#choice?.uplink
    const state = store.state()
    const reasons = [
      ...(this.#choice ? [] : ['no uplink was found yet']),
      ...(this.#lease ? [] : ['this node has no subnet yet']),
      ...(this.#snapshot ? [] : ['the leases of the other nodes are not known yet']),
      ...this.#failures,
      ...this.#fights.current(performance.now()),
    ]
    const own = this.#lease?.subnets ?? {}
    const peers = (this.#snapshot?.leases ?? [])
      .filter((one) => !isSame(one.subnets, own))
      .map(({ node, subnets, ips, backend }): Peer => ({ ...(node === undefined ? {} : { node }), subnets, ips, backend, ...problemOf(all(subnets), this.#problems) }))
    return {
      node,
      version,
      started: this.#started,
      network: { ...(conf.v4 ? { v4: conf.v4.network } : {}), ...(conf.v6 ? { v6: conf.v6.network } : {}) },
      subnets: own,
      backend: backend.type,
      mtu: uplink ? this.#mtu() : 0,
      uplink: uplink && { name: uplink.name, tunnel: uplink.tunnel, advertise: uplink.advertise, why: this.#choice?.why ?? '' },
      store: state,
      ready: this.#isSynced && reasons.length === 0,
      reasons: this.#isSynced || reasons.length > 0 ? reasons : ['the first sync is not done yet'],
      peers,
      unreadable: this.#snapshot?.unreadable.length ?? 0,
      kinds: this.#kinds,
      repairs: this.#repairs,
      steps: this.#steps,
      lastError: this.#lastError,
    }
  }
}

function problemOf(subnets: readonly string[], problems: readonly string[]): { problem?: string } {
  const problem = problems.find((one) => subnets.some((subnet) => one.includes(subnet)))
  return problem === undefined ? {} : { problem }
}

function all<T>({ v4, v6 }: Both<T>): T[] {
  return [...(v4 === undefined ? [] : [v4]), ...(v6 === undefined ? [] : [v6])]
}

function isSame(one: Both<unknown>, other: Both<unknown>): boolean {
  return one.v4 === other.v4 && one.v6 === other.v6
}
