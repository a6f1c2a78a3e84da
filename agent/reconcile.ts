import { shown, ValueError } from '../lib/text/errors.ts'
import { blackholes } from './backend/blackhole.ts'
import { called } from './backend/peers.ts'
import type { Probes } from './backend/probes.ts'
import { news, scoped, summary, type Unreached } from './backend/unreached.ts'
import { chooseUplink, overlap, see, type Uplink } from './backend/uplink.ts'
import { leaveForward, passForward } from './firewall/forward.ts'
import { overlaid, partsOf, ruleset } from './firewall/masquerade.ts'
import { keepTable, type Table } from './firewall/table.ts'
import { beginning, conditionOf, type Standing, tell, withStep } from './health/condition.ts'
import type { Status } from './health/status.ts'
import type { Event } from './kernel/events.ts'
import { type Fought, watchFights } from './kernel/fights.ts'
import { PROTO } from './kernel/marks.ts'
import { both, isSame } from './lease/families.ts'
import { encodeKey, type Lease, type SubnetKey } from './lease/lease.ts'
import { giveBack } from './node/garbage.ts'
import type { Parts } from './parts.ts'
import type { Failure } from './scheduler/failures.ts'
import { Claiming } from './store/claiming.ts'
import { type Snapshot, SubnetTakenError } from './store/store.ts'

const REMEMBERED = 100
/** So many entries of a store that cannot be read are told of at once. */
const TOLD = 20
/** So many peers without an answer are named. */
const NAMED = 3
/** Whoever follows the status is told of round trips with every so many ticks. */
const PROBES_TOLD = 10
/** So long until what failed is tried again: what concerns the node soon, what concerns single peers later each time. */
const [RETRY_MS, LONGEST_RETRY_MS] = [1000, 30_000]

/** What is looked at when somebody may have changed it, each with a wake of its own. */
export type Doubt = 'uplink' | 'forward' | 'table' | 'files'

/** The agent's one loop: what the store, the kernel and the configuration say, into what the kernel has. Level-triggered: every step begins with all that is known. */
export class Reconciler {
  readonly #parts: Parts
  readonly #table: Table
  readonly #claiming: Claiming
  readonly #fights = watchFights()
  readonly #now: Standing = beginning()
  readonly #repaired = new Map<string, number>()
  readonly #links = new Map<string, string>()
  #doubted = { uplink: true, forward: true, files: true }
  #leasedAs = ''
  #strangers = new Set<string>()
  #programmed: { readonly problems: Unreached; readonly failed: Unreached } = { problems: new Map(), failed: new Map() }
  #retryMs = RETRY_MS
  #isAimed = false
  /** Whether the store itself has told the leases, and the configuration. */
  #hasLeases = false
  #isConfirmed = false
  #ticks = 0
  readonly #silent = new Set<SubnetKey>()

  constructor(parts: Parts) {
    const { store, conf, wakes, renewMarginMs, firewall } = parts
    this.#parts = parts
    const { stale } = parts
    if (stale) Object.assign(this.#now, { lease: stale.lease, snapshot: { leases: stale.leases, unreadable: [] }, stale: stale.at } satisfies Partial<Standing>)
    this.#table = keepTable(firewall.table)
    if (parts.probes) this.#now.probe = parts.probes.of
    this.#claiming = new Claiming(store, conf, wakes, renewMarginMs, (text) => this.note(text))
  }

  /** Takes the leases as they are now; the next step programs them. */
  take(snapshot: Snapshot): void {
    this.#now.snapshot = snapshot
    this.#hasLeases = true
    this.#isAimed = false
    this.#pass(snapshot)
    this.#claiming.take(snapshot.leases)
    this.#parts.wakes.poke('leases')
  }

  /** The store has the network configuration that was known from before. */
  confirm(): void {
    this.#isConfirmed = true
    this.#parts.wakes.poke('configuration')
  }

  /** Somebody may have changed the uplink, others' FORWARD chain, our table, or subnet.env. */
  doubt(what: Doubt): void {
    if (what === 'table') this.#table.doubt()
    else this.#doubted[what] = true
  }

  /** Whether what happened may change the choice of the uplink, or which peers are on its link. */
  concerns({ kind, key, gone, text, resource }: Event): boolean {
    const name = this.#now.choice?.uplink.name
    // A link is told of whenever a device is made on it, too, and looks as it did.
    if (kind === 'link' && !gone && this.#links.get(key) === text) return false
    // Pods come and go: what is gone is not remembered.
    if (kind === 'link' && gone) this.#links.delete(key)
    else if (kind === 'link') this.#links.set(key, text)
    const dev = resource.kind === 'link' ? resource.name : 'dev' in resource ? resource.dev : undefined
    if (kind !== 'link' && kind !== 'addr' && !(resource.kind === 'route' && resource.proto !== PROTO)) return false
    return name === undefined || dev === undefined || dev === name || (resource.kind === 'route' && resource.dst.endsWith('/0'))
  }

  /** Looks at everything anew with the next step. */
  doubtAll(): void {
    for (const what of ['uplink', 'forward', 'table', 'files'] as const) this.doubt(what)
    this.#parts.converger.invalidate()
  }

  /** How everything stands. */
  status(): Status {
    return tell(this.#parts, this.#standing())
  }

  #standing(): Standing {
    const { wakes, converger } = this.#parts
    const isPending = (key: string) => (key.startsWith(WAKE) ? wakes.isHeld(key.slice(WAKE.length)) : converger.isPending(key))
    return { ...this.#now, refusal: this.#claiming.problem, fights: this.#fights.current(performance.now(), isPending) }
  }

  /** One step. Throws only what ends the agent: SubnetTakenError. */
  async step(why: readonly string[]): Promise<void> {
    const started = performance.now()
    const failures: Failure[] = []
    const attempt = async (what: string, work: () => Promise<void> | void) => {
      try {
        await work()
      } catch (cause) {
        if (cause instanceof SubnetTakenError) throw cause
        failures.push({ scope: 'node', text: `${what}: ${(cause as Error).message}` })
      }
    }
    if (this.#claiming.fatal) throw this.#claiming.fatal
    await attempt('Cannot choose the uplink', () => this.#settleDoubt('uplink', () => this.#look()))
    const uplink = this.#now.choice?.uplink
    if (uplink) await attempt('Cannot announce this node', () => this.#claim(uplink))
    this.#keep()
    const { contest } = this.#claiming
    if (contest !== undefined) failures.push({ scope: 'part', text: contest })
    const lease = this.#claiming.lease ?? this.#now.lease
    if (lease && !isSame(lease.subnets, this.#now.lease?.subnets ?? {})) this.#isAimed = false
    if (lease) this.#now.lease = lease
    if (lease && uplink) {
      await attempt('Cannot tell the node its subnet', () => this.#tell(lease, uplink))
      await attempt('Cannot load the firewall rules', () => this.#firewall(lease))
      const { snapshot } = this.#now
      if (snapshot) await attempt('Cannot program the peers', () => this.#program(lease, uplink, snapshot, why, failures))
    }
    if (!this.#now.isSynced && !failures.some(isOfNode) && this.#now.lease && this.#now.snapshot) await attempt('Cannot finish what the node needs', () => this.#settle())
    this.#finish(started, failures)
  }

  /** Asks peers whether they answer, those that are due; to be called once a second. */
  probe(): void {
    const { probes, changed, condition } = this.#parts
    if (!probes) return
    if (!this.#isAimed) this.#aim(probes)
    const { silent, back } = probes.tick(performance.now())
    for (const key of silent) this.#silent.add(key)
    for (const key of back) this.#silent.delete(key)
    if (silent.length > 0) this.note(`no answer over the overlay from ${this.#named(silent)}`, true)
    if (back.length > 0) this.#parts.log(`agent: answering again: ${this.#named(back)}`)
    const isOther = silent.length + back.length > 0
    if (isOther) this.#hush()
    if (isOther) condition(conditionOf(this.#parts, this.#standing()))
    // Round trips are no news by themselves.
    if (isOther || ++this.#ticks % PROBES_TOLD === 0) changed(() => this.status())
  }

  // Whoever is not programmed cannot answer.
  #aim(probes: Probes): void {
    const { lease, snapshot, unreached } = this.#now
    if (!lease || !snapshot) return
    this.#isAimed = true
    const { backend } = this.#parts
    const from = backend.answersAt(lease)
    const aims = snapshot.leases.flatMap((peer) => {
      const key = encodeKey(peer.subnets)
      if (isSame(peer.subnets, lease.subnets) || unreached.has(key)) return []
      const { v4, v6 } = backend.answersAt(peer)
      const to = { ...(v4 && from.v4 && { v4 }), ...(v6 && from.v6 && { v6 }) }
      return to.v4 || to.v6 ? [{ key, from, to }] : []
    })
    probes.aim(aims)
    for (const key of this.#silent) if (probes.of(key)?.state !== 'silent') this.#silent.delete(key)
    this.#hush()
  }

  #hush(): void {
    const { size } = this.#silent
    this.#now.silent = size === 0 ? [] : [`${size} ${size > 1 ? 'peers do' : 'peer does'} not answer over the overlay: ${this.#named([...this.#silent])}`]
  }

  #named(keys: readonly SubnetKey[]): string {
    const few = new Set(keys.slice(0, NAMED))
    const named = (this.#now.snapshot?.leases ?? []).filter(({ subnets }) => few.has(encodeKey(subnets))).map((lease) => called(lease))
    return `${named.join(', ')}${keys.length > NAMED ? ` and ${keys.length - NAMED} more` : ''}`
  }

  // What the store says is kept; what was known before it is stale until all of it has come.
  #keep(): void {
    const { lease } = this.#claiming
    const { snapshot, stale } = this.#now
    if (!lease || !snapshot || !this.#hasLeases || (stale !== undefined && !this.#isConfirmed)) return
    if (stale !== undefined) this.#parts.log('agent: the store answers: what was known before the start counts no more')
    delete this.#now.stale
    this.#parts.keep({ lease, leases: snapshot.leases })
  }

  async #settle(): Promise<void> {
    await this.#parts.synced()
    this.#now.isSynced = true
  }

  // Each is told of once, as long as it stays as it is.
  #pass({ unreadable }: Snapshot): void {
    const now = new Map(unreadable.map(({ key, why }) => [`${key} ${why}`, `agent: passed over ${shown(key)} in the store: ${why}`]))
    const news = [...now].filter(([id]) => !this.#strangers.has(id))
    for (const [, text] of news.slice(0, TOLD)) this.#parts.log(text)
    if (news.length > TOLD) this.#parts.log(`agent: passed over ${news.length - TOLD} more`)
    this.#strangers = new Set(now.keys())
  }

  // What changes while it is looked at is doubtful again.
  async #settleDoubt(what: Exclude<Doubt, 'table'>, work: () => Promise<void> | void): Promise<void> {
    if (!this.#doubted[what] || this.#isHeld(what)) return
    this.#doubted[what] = false
    try {
      await work()
    } catch (cause) {
      this.#doubted[what] = true
      throw cause
    }
  }

  #isHeld(what: Doubt): boolean {
    return this.#fights.held(performance.now()).has(`${WAKE}${what}`)
  }

  async #look(): Promise<void> {
    const { wish, run, conf, allowOverlap, log, backend, options } = this.#parts
    const sight = await see(wish, run)
    const before = this.#now.choice?.uplink
    const choice = chooseUplink(sight, wish, conf, before)
    for (const pool of before || allowOverlap ? [] : [conf.v4, conf.v6]) {
      const meets = pool && overlap(sight, pool.network, backend.links(options))
      if (!meets) continue
      const text = `the network ${pool.network} overlaps the route ${meets} of this node`
      // A node that has pods already is served on.
      if (!this.#parts.before?.v4 && !this.#parts.before?.v6) throw new ValueError(`${text}; want another "Network", or --allow-overlap`)
      log(`agent: ${text}: addresses there may be out of reach`)
    }
    this.#now.choice = choice
    const { name, index, mtu, tunnel, advertise } = choice.uplink
    if (before?.name !== name || before.index !== index || before.mtu !== mtu || !isSame(before.tunnel, tunnel) || !isSame(before.advertise, advertise)) log(`agent: uplink ${name} ${both(tunnel).join(' ')}: ${choice.why} mtu=${mtu}`)
  }

  #claim(uplink: Uplink): void {
    const { backend, node, identity, options, before, facts } = this.#parts
    this.#claiming.want({ node, ...(identity !== undefined && { identity }), ips: uplink.advertise, backend: backend.type, data: backend.announce(node, uplink, options, facts.standing) }, before)
  }

  async #tell(lease: Lease, uplink: Uplink): Promise<void> {
    const { backend, options, leased, log } = this.#parts
    const mtu = backend.mtu(options, uplink.mtu, uplink.tunnel)
    const now = JSON.stringify([lease.subnets, mtu])
    if (now === this.#leasedAs) {
      await this.#settleDoubt('files', () =>
        this.#repair(
          'file',
          leased(lease, mtu).map((path) => fought('files', path)),
        ),
      )
      return
    }
    leased(lease, mtu)
    this.#leasedAs = now
    this.#now.mtu = mtu
    log(`agent: this node has ${both(lease.subnets).join(' ')}${lease.expires === undefined ? '' : ` until ${new Date(lease.expires).toISOString()}`} mtu=${mtu}`)
  }

  async #firewall(lease: Lease): Promise<void> {
    const { firewall, run, facts } = this.#parts
    const { networks } = facts
    const { table, masquerade, keep, random, forward } = firewall
    const isFirst = this.#now.kinds['nft'] === undefined
    const done: Fought[] = []
    const rules = { networks, own: both(lease.subnets), masquerade, keep, random }
    if (!this.#isHeld('table') && (await this.#table.ensure({ over: overlaid(table, rules), anew: ruleset(table, rules), parts: partsOf(rules) }, run))) done.push(fought('table', `nft table ${table}`))
    // Without forward rules those of an earlier start go.
    if (!forward && isFirst) await leaveForward(facts.instance, run)
    if (forward) await this.#settleDoubt('forward', async () => void done.push(...(await passForward(networks, facts.instance, run)).map((what) => fought('forward', what))))
    if (!isFirst) this.#repair('nft', done)
    this.#now.kinds = { ...this.#now.kinds, nft: { wanted: 1, programmed: 1, repaired: this.#repaired.get('nft') ?? 0 } }
  }

  async #program(lease: Lease, uplink: Uplink, { leases }: Snapshot, why: readonly string[], failures: Failure[]): Promise<void> {
    const { backend, options, converger, facts, log, blackhole } = this.#parts
    const begun = performance.now()
    const { resources, problems, ownersOf } = backend.want(lease, leases, uplink, options, facts)
    converger.hold(this.#fights.held(begun))
    const done = await converger.step(blackhole ? [...blackholes(lease.subnets), ...resources] : resources)
    giveBack(done.changed)
    const { peers: failed, others } = scoped(done, ownersOf)
    failures.push(...others)
    this.#lose(problems, failed, leases)
    for (const [kind, what] of Object.entries(done.repaired)) this.#repair(kind, what)
    const counts = Object.entries(done.counts).map(([kind, count]) => [kind, { ...count, repaired: this.#repaired.get(kind) ?? 0 }] as const)
    this.#now.kinds = { ...this.#now.kinds, ...Object.fromEntries(counts) }
    if (done.changed === 0) return
    const peers = leases.filter((one) => !isSame(one.subnets, lease.subnets)).length
    log(`agent: programmed ${peers - this.#now.unreached.size} peers by ${backend.type} on ${uplink.name} changed=${done.changed} took=${Math.round(performance.now() - begun)}ms why=${why.join(',')}`)
  }

  // Told of by reason, and once, as long as a peer has it.
  #lose(problems: Unreached, failed: Unreached, leases: readonly Lease[]): void {
    const before = this.#programmed
    if (problems === before.problems && failed.size === 0 && before.failed.size === 0) return
    const unreached = failed.size === 0 ? problems : new Map([...problems, ...failed])
    for (const text of summary(news(unreached, this.#now.unreached), leases)) this.note(text, true)
    this.#programmed = { problems, failed }
    this.#now.unreached = unreached
    this.#isAimed = false
    this.#now.lost = summary(unreached, leases)
  }

  /** Tells that the plugins' rules had to be loaded again. */
  repairedRules(): void {
    this.#repair('nft', [fought('table', 'nft table plumb')])
    this.#parts.changed(() => this.status())
  }

  #repair(kind: string, what: readonly Fought[]): void {
    if (what.length === 0) return
    // Another program that wants it otherwise is there again at once.
    const pause = this.#fights.note([...new Map(what.map((one) => [one.key, one])).values()], performance.now())
    const { wakes } = this.#parts
    if (pause > 0) for (const { key } of what) if (key.startsWith(WAKE)) wakes.hold(key.slice(WAKE.length), pause)
    if (pause > 0) wakes.poke('fight', pause)
    this.#repaired.set(kind, (this.#repaired.get(kind) ?? 0) + what.length)
    const titles = what.slice(0, 3).map(({ title }) => title)
    const text = `${titles.join(', ')}${what.length > 3 ? ` and ${what.length - 3} more` : ''}`
    this.#now.repairs = [...this.#now.repairs, { at: Date.now(), what: text }].slice(-REMEMBERED)
    this.#parts.log(`agent: put right what somebody else had changed: ${text}`)
  }

  /** Tells what went wrong, in the log and the status; once, as long as it is the last, or among what the last step said. */
  note(text: string, isNew = this.#now.lastError?.what !== text): void {
    if (isNew) this.#parts.log(`agent: ${text}`)
    this.#now.lastError = { at: Date.now(), what: text }
  }

  #finish(started: number, failures: readonly Failure[]): void {
    const { wakes, changed, condition } = this.#parts
    const before = new Set(this.#now.failures.map(({ text }) => text))
    for (const { text } of failures) this.note(text, !before.has(text))
    this.#now.failures = failures
    if (failures.length > 0 || this.#programmed.failed.size > 0) wakes.poke('retry', this.#retryMs)
    // What fails for a single peer goes on failing, mostly, until an event tells of it.
    this.#retryMs = failures.some(isOfNode) || (failures.length === 0 && this.#programmed.failed.size === 0) ? RETRY_MS : Math.min(LONGEST_RETRY_MS, this.#retryMs * 2)
    this.#now.steps = withStep(this.#now.steps, (performance.now() - started) / 1000)
    condition(conditionOf(this.#parts, this.#standing()))
    changed(() => this.status())
  }
}

// What is put right by a wake of its own, which is held back when it is fought over.
const WAKE = 'wake '

function fought(wake: Doubt, title: string): Fought {
  return { key: `${WAKE}${wake}`, title }
}

function isOfNode({ scope }: Failure): boolean {
  return scope === 'node'
}
