import { shown, ValueError } from '../lib/errors.ts'
import { PROTO } from './backend.ts'
import { blackholes } from './blackhole.ts'
import { both, isSame } from './both.ts'
import { Claiming } from './claiming.ts'
import type { Event } from './events.ts'
import { watchFights } from './fights.ts'
import { leaveForward, passForward } from './forward.ts'
import type { Lease } from './lease.ts'
import { overlaid, partsOf, ruleset } from './masquerade.ts'
import type { Parts } from './parts.ts'
import type { Status } from './status.ts'
import { type Snapshot, SubnetTakenError } from './store.ts'
import { keepTable, type Table } from './table.ts'
import { beginning, type Standing, tell, withStep } from './telling.ts'
import { giveBack } from './tidy.ts'
import { chooseUplink, overlap, see, type Uplink } from './uplink.ts'

const REMEMBERED = 100
/** So many entries of a store that cannot be read are told of at once. */
const TOLD = 20

/** The agent's one loop: what the store, the kernel and the configuration say, into what the kernel has. Level-triggered: every step begins with all that is known. */
export class Reconciler {
  readonly #parts: Parts
  readonly #table: Table
  readonly #claiming: Claiming
  readonly #fights = watchFights()
  readonly #now: Standing = beginning()
  readonly #repaired = new Map<string, number>()
  readonly #links = new Map<string, string>()
  #doubted = { uplink: true, forward: true }
  #leasedAs = ''
  #strangers = new Set<string>()

  constructor(parts: Parts) {
    const { store, conf, wakes, renewMarginMs, firewall } = parts
    this.#parts = parts
    this.#table = keepTable(firewall.table)
    this.#claiming = new Claiming(store, conf, wakes, renewMarginMs, (text) => this.note(text))
  }

  /** Takes the leases as they are now; the next step programs them. */
  take(snapshot: Snapshot): void {
    this.#now.snapshot = snapshot
    this.#pass(snapshot)
    this.#claiming.take(snapshot.leases)
    this.#parts.wakes.poke('leases')
  }

  /** Somebody may have changed the uplink, others' FORWARD chain, or our table. */
  doubt(what: 'uplink' | 'forward' | 'table'): void {
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
    for (const what of ['uplink', 'forward', 'table'] as const) this.doubt(what)
    this.#parts.converger.invalidate()
  }

  /** How everything stands. */
  status(): Status {
    const { node, version, backend, conf, store, wakes } = this.#parts
    const waits = wakes.isHeld('drift') || wakes.isHeld('rules')
    return tell({ node, version, backend, conf, store }, { ...this.#now, refusal: this.#claiming.problem, fights: this.#fights.current(performance.now(), waits) })
  }

  /** One step. Throws only what ends the agent: SubnetTakenError. */
  async step(why: readonly string[]): Promise<void> {
    const started = performance.now()
    const failures: string[] = []
    const attempt = async (what: string, work: () => Promise<void> | void) => {
      try {
        await work()
      } catch (cause) {
        if (cause instanceof SubnetTakenError) throw cause
        failures.push(`${what}: ${(cause as Error).message}`)
      }
    }
    if (this.#claiming.fatal) throw this.#claiming.fatal
    await attempt('Cannot choose the uplink', () => this.#settleDoubt('uplink', () => this.#look()))
    const uplink = this.#now.choice?.uplink
    if (uplink) await attempt('Cannot announce this node', () => this.#claim(uplink))
    const { lease } = this.#claiming
    if (lease) this.#now.lease = lease
    if (lease && uplink) {
      await attempt('Cannot tell the node its subnet', () => this.#tell(lease, uplink))
      await attempt('Cannot load the firewall rules', () => this.#firewall(lease))
      const { snapshot } = this.#now
      if (snapshot) await attempt('Cannot program the peers', () => this.#program(lease, uplink, snapshot, why, failures))
    }
    if (!this.#now.isSynced && failures.length === 0 && this.#now.lease && this.#now.snapshot) await attempt('Cannot finish what the node needs', () => this.#settle())
    this.#finish(started, failures)
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
  async #settleDoubt(what: 'uplink' | 'forward', work: () => Promise<void>): Promise<void> {
    if (!this.#doubted[what]) return
    this.#doubted[what] = false
    try {
      await work()
    } catch (cause) {
      this.#doubted[what] = true
      throw cause
    }
  }

  async #look(): Promise<void> {
    const { wish, run, conf, allowOverlap, log, backend, options } = this.#parts
    const sight = await see(wish, run)
    const choice = chooseUplink(sight, wish, conf)
    const before = this.#now.choice?.uplink
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
    const { backend, node, options, before } = this.#parts
    this.#claiming.want({ node, ips: uplink.advertise, backend: backend.type, data: backend.announce(node, uplink, options) }, before)
  }

  #tell(lease: Lease, uplink: Uplink): void {
    const { backend, options, leased, log } = this.#parts
    const mtu = backend.mtu(options, uplink.mtu, uplink.tunnel)
    const now = JSON.stringify([lease.subnets, mtu])
    if (now === this.#leasedAs) return
    leased(lease, mtu)
    this.#leasedAs = now
    this.#now.mtu = mtu
    log(`agent: this node has ${both(lease.subnets).join(' ')}${lease.expires === undefined ? '' : ` until ${new Date(lease.expires).toISOString()}`} mtu=${mtu}`)
  }

  async #firewall(lease: Lease): Promise<void> {
    const { firewall, run, conf, facts } = this.#parts
    const { table, masquerade, keep, random, forward } = firewall
    const networks = [...(conf.v4 ? [conf.v4.network] : []), ...(conf.v6 ? [conf.v6.network] : [])]
    const isFirst = this.#now.kinds['nft'] === undefined
    const done: string[] = []
    const rules = { networks, own: both(lease.subnets), masquerade, keep, random }
    if (await this.#table.ensure({ over: overlaid(table, rules), anew: ruleset(table, rules), parts: partsOf(rules) }, run)) done.push(`nft table ${table}`)
    // Without forward rules those of an earlier start go.
    if (!forward && isFirst) await leaveForward(facts.instance, run)
    if (forward) await this.#settleDoubt('forward', async () => void done.push(...(await passForward(networks, facts.instance, run))))
    if (!isFirst) this.#repair('nft', done, 'rules')
    this.#now.kinds = { ...this.#now.kinds, nft: { wanted: 1, programmed: 1, repaired: this.#repaired.get('nft') ?? 0 } }
  }

  async #program(lease: Lease, uplink: Uplink, { leases }: Snapshot, why: readonly string[], failures: string[]): Promise<void> {
    const { backend, options, converger, facts, log, blackhole } = this.#parts
    const begun = performance.now()
    const { resources, problems } = backend.want(lease, leases, uplink, options, facts)
    for (const problem of problems) if (!this.#now.problems.includes(problem)) this.note(problem)
    this.#now.problems = problems
    const done = await converger.step(blackhole ? [...blackholes(lease.subnets), ...resources] : resources)
    giveBack(done.changed)
    failures.push(...done.failed)
    for (const [kind, what] of Object.entries(done.repaired)) this.#repair(kind, what, 'drift')
    const counts = Object.entries(done.counts).map(([kind, count]) => [kind, { ...count, repaired: this.#repaired.get(kind) ?? 0 }] as const)
    this.#now.kinds = { ...this.#now.kinds, ...Object.fromEntries(counts) }
    if (done.changed === 0) return
    const peers = leases.filter((one) => !isSame(one.subnets, lease.subnets)).length
    log(`agent: reached ${peers - problems.length} peers by ${backend.type} on ${uplink.name} changed=${done.changed} took=${Math.round(performance.now() - begun)}ms why=${why.join(',')}`)
  }

  #repair(kind: string, what: readonly string[], wake: 'drift' | 'rules'): void {
    if (what.length === 0) return
    // Another program that wants it otherwise is there again at once.
    const pause = this.#fights.note(what, performance.now())
    if (pause > 0) this.#parts.wakes.hold(wake, pause)
    this.#repaired.set(kind, (this.#repaired.get(kind) ?? 0) + what.length)
    const text = what.length > 3 ? `${what.slice(0, 3).join(', ')} and ${what.length - 3} more` : what.join(', ')
    this.#now.repairs = [...this.#now.repairs, { at: Date.now(), what: text }].slice(-REMEMBERED)
    this.#parts.log(`agent: put right what somebody else had changed: ${text}`)
  }

  /** Tells what went wrong, in the log and the status; once, as long as it is the last, or among what the last step said. */
  note(text: string, isNew = this.#now.lastError?.what !== text): void {
    if (isNew) this.#parts.log(`agent: ${text}`)
    this.#now.lastError = { at: Date.now(), what: text }
  }

  #finish(started: number, failures: readonly string[]): void {
    const { wakes, changed } = this.#parts
    for (const text of failures) this.note(text, !this.#now.failures.includes(text))
    this.#now.failures = failures
    if (failures.length > 0) wakes.poke('retry', 1000)
    this.#now.steps = withStep(this.#now.steps, (performance.now() - started) / 1000)
    changed(() => this.status())
  }
}
