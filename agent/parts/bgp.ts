import { contains, isSix } from '../../lib/text/cidr.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import { firstOf } from '../../lib/text/listing.ts'
import { networksOnLink, onLink } from '../backend/peers.ts'
import type { Uplink } from '../backend/uplink.ts'
import { Bird } from '../bgp/bird.ts'
import { type BirdConf, birdConf, type Session, type Ways } from '../bgp/bird-conf.ts'
import { BirdError, type SessionState } from '../bgp/birdc.ts'
import { usesLabels } from '../bgp/selection.ts'
import { type BgpSource, keepSource, keptSource, readSource } from '../bgp/source.ts'
import type { KindName } from '../cluster/kinds.ts'
import type { Labels } from '../cluster/reading.ts'
import { both } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import { pause } from '../scheduler/pause.ts'
import type { Queue } from '../scheduler/queue.ts'
import type { NodeState } from '../state/condition.ts'
import type { BgpSession } from '../state/status.ts'
import type { Context } from './context.ts'
import type { ServicesPart } from './services.ts'

/** How often BIRD is asked for its sessions, in milliseconds. Many sessions are asked for less often. */
const [LOOK_MS, LOOK_EACH_MS] = [1000, 20]
/** The number of looks after which another BIRD is looked for. It may be started later, as by an upgrade of its package. */
const RIVAL_LOOKS = 5
/** BIRD that does not answer so often, each time for so long, is ended. */
const [MISSES, MISS_MS] = [3, 5000]
/** How long Services and labels of nodes may be unknown at the start before BIRD starts without them. */
const PATIENCE_MS = 5000
/** A BIRD that ran for less than this starts again after a pause. The pause doubles up to the longest. */
const [LASTING_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [10_000, 1000, 30_000]
/** The agent takes a change back by so much earlier than BIRD does by itself. For short limits it is a quarter. */
const MARGIN_MS = 5000
/** How long the sessions of a BIRD that was taken over may take before another configuration is tried. */
const SETTLING_MS = 15_000
/** How long a session may be away before the status names it. */
const AWAY_MS = 15_000
/** The sessions that one sentence names. */
const NAMED = 3

/** The file as it is: a configuration, or why it is none. Two of one `id` are the same. */
interface FileState {
  readonly id: string
  readonly source?: BgpSource
  readonly why?: string
}

/** A configuration that BIRD has, and that counts when the sessions of before are back in time. */
interface Trial {
  readonly source: BgpSource
  /** The sessions that were established before. */
  readonly expected: ReadonlySet<string>
  /** When it is judged for the first and for the last time, by performance.now(). */
  readonly from: number
  readonly until: number
}

interface Listener {
  changed(): void
  programsChanged(): void
  nodesChanged(): void
}

/** Runs BIRD with the configuration of BGP. BIRD and its routes stay when the agent ends. */
export class BgpPart implements Part {
  readonly name = 'bgp'
  readonly trouble = 'Cannot run BGP'
  readonly quietMs: number
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #services: ServicesPart | undefined
  readonly #changed: () => void
  readonly #programsChanged: () => void
  readonly #nodesChanged: () => void
  readonly #file: string
  readonly #bird: Bird
  readonly #born = performance.now()
  /** Until then BIRD, which was taken over, gets the configuration that counted. By performance.now(). */
  #settlesUntil: number | undefined
  /** The configuration that counts, the one on trial, and the one that was refused with the reason. */
  #good: BgpSource | undefined
  #trial: Trial | undefined
  #refused: { readonly id: string; readonly why: string } | undefined
  /** The file as it was read last. The poll compares the identity. */
  #read: FileState = { id: '' }
  #made: BirdConf = { text: '', sessions: [], announced: 0, problems: [] }
  #programs: 'agent' | 'bird' = 'agent'
  #nodes: readonly Ip[] = []
  #restarts = 0
  /** BIRD runs as far as is known, and why it could not be started last. */
  #isUp = false
  #startTrouble = 'BIRD has ended, and starts again in a moment'
  #startedAt = Number.NEGATIVE_INFINITY
  #pauseMs = FIRST_PAUSE_MS
  /** Since when a session is away, by BIRD's name of it. */
  readonly #awaySince = new Map<string, number>()
  /** Why a session went away. BIRD forgets it when it tries again. */
  readonly #reasons = new Map<string, string>()

  /**
   * `changed` is called when the sessions have changed, `programsChanged` when another program writes the routes to nodes.
   */
  constructor(
    context: Context,
    { file, dir }: NonNullable<Context['bgp']>,
    now: NodeState,
    services: ServicesPart | undefined,
    queue: Queue,
    { changed, programsChanged, nodesChanged }: Listener,
  ) {
    this.#context = context
    this.#now = now
    this.#services = services
    this.queue = queue
    this.quietMs = context.quietMs
    this.#changed = changed
    this.#programsChanged = programsChanged
    this.#nodesChanged = nodesChanged
    this.#file = file
    this.#bird = new Bird(dir, context.run, () => queue.addUrgent('BIRD ended'))
    services?.onReached(() => queue.addUrgent('services'))
    context.objects?.changes(NODE_KINDS, () => this.queue.add('labels'))
    this.#takeOver()
    this.#read = this.#readFile()
    this.#programs = this.#programsNow()
    this.#nodes = this.#nodesNow()
    this.#set([])
  }

  /** Who writes the routes to other nodes. The agent does so until BIRD's configuration has proved itself. */
  get programs(): 'agent' | 'bird' {
    return this.#programs
  }

  async step(): Promise<Outcome> {
    const { served: lease, choice, snapshot } = this.#now
    if (!lease || !choice || !snapshot) return WAITING
    try {
      const failures = await this.#advance(lease, choice.uplink, snapshot.leases)
      return failures.length > 0 ? { failures } : DONE
    } catch (cause) {
      // Pods do not need BGP to reach each other.
      return { failures: [failureOf(`${this.trouble}: ${(cause as Error).message}`)] }
    }
  }

  /** Follows BIRD, the sessions and the file until the signal. */
  async follow(signal: AbortSignal): Promise<void> {
    let last = this.#read
    for (let [looks, misses] = [0, 0]; !signal.aborted; await pause(this.#lookMs(), signal)) {
      if (looks++ % RIVAL_LOOKS === 0) this.#reportRival()
      const now = this.#readFile()
      // A file may be looked at while somebody writes it. So a change counts when the next look sees the same.
      if (now.id !== this.#read.id && now.id === last.id) {
        this.#read = now
        this.queue.add('bgp-config')
      }
      last = now
      if (!this.#isUp) continue
      if (this.#bird.pid === undefined) {
        this.#isUp = false
        this.#publish([])
        this.queue.addUrgent('BIRD ended')
        continue
      }
      try {
        this.#publish(this.#withReasons(await this.#bird.sessions(MISS_MS)))
        misses = 0
      } catch (cause) {
        misses++
        if (misses < MISSES || signal.aborted || this.#bird.pid === undefined) continue
        this.#context.warn(`agent: BIRD does not answer, ending it: ${(cause as Error).message}`)
        this.#bird.kill()
        misses = 0
        this.queue.addUrgent('BIRD hangs')
      }
      if (this.#trial) this.queue.add('trial')
    }
  }

  #reportRival(): void {
    const rival = this.#isUp ? this.#bird.rival : undefined
    const failures = rival === undefined ? [] : [failureOf(`BGP is disturbed: ${rival}`)]
    this.#context.failures.report('another BIRD', failures)
  }

  #lookMs(): number {
    return Math.max(LOOK_MS, LOOK_EACH_MS * this.#made.sessions.length)
  }

  async #advance(lease: Lease, uplink: Uplink, leases: readonly Lease[]): Promise<Failure[]> {
    if (this.#bird.pid === undefined) this.#takeOver()
    const isRunning = this.#bird.pid !== undefined
    if (this.#trial && !isRunning) this.#refuse('BIRD ended with it')
    await this.#judgeTrial()
    await this.#settle()
    const source = this.#chosen()
    const texts = [
      ...(this.#read.why === undefined ? [] : [`${this.#read.why}${this.#good ? GOES_ON : ''}`]),
      ...(this.#refused && this.#refused.id === this.#read.id ? [this.#refused.why] : []),
    ]
    const nodes = this.#nodesNow()
    if (!Bun.deepEquals(nodes, this.#nodes)) {
      this.#nodes = nodes
      this.#nodesChanged()
    }
    if (!source) return texts.map(failureOf)
    const { addresses, missing } = this.#addresses(source)
    const { labelsOf, unknown } = this.#labels(source)
    // The new routes are there before the old ones go: the agent's before BIRD is told, and BIRD's before the agent is.
    const programs = this.#programsNow()
    if (programs === 'agent') this.#choose(programs)
    // BIRD needs the device of the tunnel, which the first step of the peers makes.
    const isEarly = programs === 'agent' ? this.#now.programs === 'bird' : this.#now.programs === undefined
    if (addresses === undefined || labelsOf === undefined || isEarly) {
      this.queue.add('unknown', LOOK_MS)
      return texts.map(failureOf)
    }
    const made = birdConf({
      conf: source.conf,
      node: this.#context.node,
      subnets: lease.subnets,
      ips: uplink.tunnel,
      seenAs: uplink.advertise,
      others: leases,
      networks: this.#context.facts.networks,
      isOnLink: onLink(uplink),
      labelsOf,
      ...this.#ways(source, uplink),
      addresses,
      passwords: source.passwords,
      logFile: this.#bird.files.log,
    })
    const failures = [...texts, ...missing, ...unknown, ...made.problems, ...this.#strangers(lease)].map(failureOf)
    if (!isRunning) {
      failures.push(...(await this.#start(made, source)))
      this.#choose(this.#programsNow())
      return failures
    }
    if (made.text !== this.#bird.applied) await this.#configure(made, source)
    this.#made = made
    this.#choose(this.#programsNow())
    this.#note()
    return failures
  }

  // BIRD of an earlier agent goes on. What that agent had accepted counts until the file has proved itself.
  #takeOver(): void {
    if (!this.#bird.adopt()) return
    this.#good ??= keptSource(this.#bird.files.accepted)
    // The agent before may have ended within a trial, whose sessions are away.
    if (this.#good) this.#settlesUntil = performance.now() + SETTLING_MS
    this.#startedAt = performance.now()
    this.#isUp = true
    this.#context.log(`agent: BIRD runs on since an earlier start of the agent, process ${this.#bird.pid}`)
  }

  #readFile(): FileState {
    try {
      const source = readSource(this.#file, this.#read.source)
      this.#refuseBackend(source)
      return { id: source.id, source }
    } catch (cause) {
      const { message } = cause as Error
      return { id: message, why: message }
    }
  }

  #refuseBackend({ conf: { programs } }: BgpSource): void {
    const { backend } = this.#context
    if (programs === 'agent' || backend.byBird) return
    const why = `backend ${backend.type} needs more than routes`
    throw new ValueError(`Cannot use ${this.#file}: programs bird: ${why}; want backend ipip, host-gw or alloc`)
  }

  // While a change is under way, BIRD alone writes the routes only when each configuration says so.
  #programsNow(): 'agent' | 'bird' {
    const all = [this.#good, this.#trial?.source, this.#chosen()].filter((one) => one !== undefined)
    if (!this.#context.backend.byBird) return 'agent'
    return all.length > 0 && all.every(({ conf }) => conf.programs === 'bird') ? 'bird' : 'agent'
  }

  #choose(programs: 'agent' | 'bird'): void {
    if (programs === this.#programs) return
    this.#programs = programs
    this.#context.log(`agent: ${programs === 'bird' ? 'BIRD' : 'the agent'} writes the routes to nodes from now on`)
    this.#programsChanged()
  }

  #ways({ conf }: BgpSource, uplink: Uplink): { readonly ways?: Ways } {
    const { backend, options } = this.#context
    if (conf.programs === 'agent' || !backend.byBird) return {}
    const onLink = [...networksOnLink(uplink, 'v4'), ...networksOnLink(uplink, 'v6')]
    return { ways: { ...backend.byBird(options), onLink } }
  }

  // Of two routes to one destination the kernel takes one, and BIRD does not know of it.
  #strangers({ subnets }: Lease): string[] {
    if (this.#programs === 'agent') return []
    const own = both(subnets)
    const isSubnet = ({ dst }: { readonly dst: Cidr }) =>
      own.some((one) => split(one).length === split(dst).length && one !== dst && isSix(one) === isSix(dst))
    const all = (this.#now.choice?.strangers ?? []).filter(isSubnet)
    const named = all.map(({ dst, protocol }) => `${dst} (proto ${protocol})`)
    if (named.length === 0) return []
    const which = `Another program writes routes to subnets of nodes beside BIRD: ${firstOf(named, NAMED)}`
    return [`${which}; stop it, or want programs agent in ${this.#file}`]
  }

  /** The peers that are nodes, as they may announce subnets. Their tunnelled packets are taken without a lease. */
  get nodes(): readonly Ip[] {
    return this.#nodes
  }

  #nodesNow(): Ip[] {
    const all = [this.#good, this.#trial?.source, this.#chosen()].flatMap((one) => one?.conf.peers ?? [])
    return [...new Set(all.flatMap(({ subnets, address }) => (subnets ? [address] : [])))].sort()
  }

  // An unreadable file changes nothing.
  #chosen(): BgpSource | undefined {
    const { source } = this.#read
    if (!source) return this.#trial?.source ?? this.#good
    if (this.#settlesUntil !== undefined) return this.#good
    return source.id === this.#refused?.id ? this.#good : source
  }

  async #settle(): Promise<void> {
    if (this.#settlesUntil === undefined) return
    const isSame = this.#read.id === this.#good?.id
    const isOver = isSame || this.#bird.pid === undefined || performance.now() >= this.#settlesUntil
    if (isOver || (this.#bird.applied !== undefined && (await this.#areAllUp()))) this.#settlesUntil = undefined
    else this.queue.add('settling', LOOK_MS)
  }

  async #areAllUp(): Promise<boolean> {
    const up = new Set((await this.#bird.sessions()).flatMap(({ protocol, state }) => (state === UP ? [protocol] : [])))
    return this.#made.sessions.every(({ protocol }) => up.has(protocol))
  }

  async #judgeTrial(): Promise<void> {
    const trial = this.#trial
    if (!trial) return
    if (this.#read.source && this.#read.id === this.#good?.id) {
      this.#trial = undefined
      return
    }
    // A session that BIRD is about to end may still look established.
    if (performance.now() < trial.from) return
    const states = new Map(this.#withReasons(await this.#bird.sessions()).map((one) => [one.protocol, one]))
    const away = [...trial.expected].flatMap((protocol) => {
      const { state, reason } = states.get(protocol) ?? { state: 'Unknown', reason: undefined }
      return state === UP ? [] : [{ protocol, state, reason }]
    })
    // Sessions that come back later may be those of the configuration before, to which BIRD went back.
    const isLate = performance.now() >= trial.until
    if (away.length === 0 && !isLate) {
      await this.#bird.confirm()
      this.#accept(trial.source)
      this.#trial = undefined
    } else if (isLate) {
      const which = away.map(({ protocol, state, reason }) => `${this.#nameOf(protocol)} is ${phrase(state, reason)}`)
      this.#refuse(which.join(', ') || 'they came back too late')
    }
  }

  #refuse(why: string): void {
    const trial = this.#trial
    if (!trial) return
    const seconds = trial.source.conf.confirmSeconds
    const text = `The change of ${this.#file} is taken back, as not all sessions were back within ${seconds} s: ${why}`
    this.#refused = { id: trial.source.id, why: `${text}; correct the file` }
    this.#trial = undefined
  }

  #accept(source: BgpSource): void {
    if (this.#good?.id !== source.id) this.#context.log(`agent: BGP goes by ${this.#file}`)
    this.#good = source
    this.#refused = undefined
    keepSource(this.#bird.files.accepted, source)
  }

  async #start(made: BirdConf, source: BgpSource): Promise<Failure[]> {
    const ran = performance.now() - this.#startedAt
    if (ran < this.#pauseMs) {
      this.queue.add('start', this.#pauseMs - ran)
      return [failureOf(`${this.trouble}: ${this.#startTrouble}`)]
    }
    const isAgain = this.#bird.hasRun
    this.#pauseMs = ran < LASTING_MS ? Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2) : FIRST_PAUSE_MS
    this.#startedAt = performance.now()
    this.#made = made
    try {
      await this.#bird.start(made.text)
    } catch (cause) {
      this.#publish([])
      this.#startTrouble = (cause as Error).message
      throw cause
    }
    this.#startTrouble = 'BIRD has ended, and starts again in a moment'
    this.#isUp = true
    if (isAgain) this.#restarts++
    this.#context.log(`agent: started BIRD${isAgain ? ' again' : ''}, process ${this.#bird.pid}`)
    this.#accept(source)
    this.#publish([])
    return []
  }

  async #configure(made: BirdConf, source: BgpSource): Promise<void> {
    if (this.#good === undefined || source.id === this.#good.id) {
      await this.#bird.configure(made.text)
      if (!this.#good) this.#accept(source)
      this.#trial = undefined
      return
    }
    if (this.#trial?.source.id === source.id) {
      const leftMs = Math.max(0, this.#trial.until - performance.now())
      const seconds = Math.ceil((leftMs + MARGIN_MS) / 1000)
      await this.#bird.configure(made.text, seconds)
      return
    }
    const kept = new Set(made.sessions.map(({ protocol }) => protocol))
    const before = (await this.#bird.sessions()).filter(({ state }) => state === UP).map(({ protocol }) => protocol)
    const expected = new Set([...(this.#trial?.expected ?? []), ...before].filter((protocol) => kept.has(protocol)))
    const { confirmSeconds } = source.conf
    const begun = performance.now()
    try {
      await this.#bird.configure(made.text, confirmSeconds)
    } catch (cause) {
      if (!(cause instanceof BirdError)) throw cause
      this.#refused = { id: source.id, why: `The change of ${this.#file} does not count: ${cause.message}` }
      this.#trial = undefined
      this.queue.add('refused')
      return
    }
    const limitMs = confirmSeconds * 1000
    const until = begun + limitMs - Math.min(MARGIN_MS, limitMs / 4)
    this.#trial = { source, expected, from: begun + LOOK_MS, until }
    this.queue.add('deadline', until - begun)
  }

  /** The addresses of Services that this node announces now. */
  get announced(): ReadonlySet<Ip> {
    const source = this.#bird.pid === undefined ? undefined : this.#chosen()
    return new Set(source && this.#addresses(source).addresses)
  }

  // Undefined while Services are not known yet: what an earlier agent announces stays.
  #addresses({ conf }: BgpSource): { readonly addresses?: readonly Ip[]; readonly missing: readonly string[] } {
    const { nodeSubnet: _, ...networks } = conf.announce
    if (Object.values(networks).every((all) => all.length === 0)) return { addresses: [], missing: [] }
    if (!this.#services) {
      const text = `${this.#file} announces addresses of Services, which this agent does not know; want --service-proxy`
      return { addresses: [], missing: [text] }
    }
    const { reached } = this.#services
    if (reached === undefined) return this.#isPatient() ? { missing: [] } : { addresses: [], missing: [] }
    const wanted = [...reached].filter(([ip, of]) =>
      of.some((field) => networks[field].some((network) => contains(network, ip))),
    )
    // The text for BIRD is the same whatever the order in which Services came.
    return { addresses: wanted.map(([ip]) => ip).sort(), missing: [] }
  }

  // Undefined while the labels are not known yet: the sessions stay as they are.
  #labels({ conf }: BgpSource): {
    readonly labelsOf: ((node: string) => Labels | undefined) | undefined
    readonly unknown: readonly string[]
  } {
    const nobody = () => undefined
    if (!usesLabels(conf)) return { labelsOf: nobody, unknown: [] }
    const { objects } = this.#context
    const text = `${this.#file} selects nodes by labels, which this agent does not know`
    if (!objects)
      return { labelsOf: nobody, unknown: [`${text}; want the store kube, or a folder of manifests with Nodes`] }
    const { nodes } = objects.objects
    if (objects.isComplete(NODE_KINDS)) return { labelsOf: (node) => nodes.get(node)?.labels, unknown: [] }
    const trouble = objects.trouble(NODE_KINDS)
    const unknown = trouble === undefined ? [] : [`${text} yet: ${trouble}`]
    return { labelsOf: this.#isPatient() ? undefined : nobody, unknown }
  }

  #isPatient(): boolean {
    return this.#bird.pid !== undefined || performance.now() - this.#born < PATIENCE_MS
  }

  #nameOf(protocol: string): string {
    const found = this.#made.sessions.find((one) => one.protocol === protocol)
    return found ? called(found) : protocol
  }

  // The status before BIRD has been asked again.
  #note(): void {
    const known = new Map(this.#now.bgp?.sessions.map((one) => [`${one.kind} ${one.address}`, one]))
    this.#set(
      this.#made.sessions.map(({ kind, name, address, asn }) => {
        const state = { state: 'Unknown', received: 0, sent: 0 }
        return { ...state, ...known.get(`${kind} ${address}`), kind, name, address, asn }
      }),
    )
  }

  #withReasons(states: readonly SessionState[]): SessionState[] {
    return states.map((one) => {
      const { protocol, state, reason } = one
      if (state === UP) this.#reasons.delete(protocol)
      else if (reason !== undefined) this.#reasons.set(protocol, reason)
      const known = reason ?? this.#reasons.get(protocol)
      return { ...one, ...(known !== undefined && { reason: known }) }
    })
  }

  #publish(states: readonly SessionState[]): void {
    const byName = new Map(states.map((one) => [one.protocol, one]))
    this.#set(
      this.#made.sessions.map(({ protocol, kind, name, address, asn }) => {
        const { protocol: _, ...state } = byName.get(protocol) ?? { protocol, state: 'Unknown', received: 0, sent: 0 }
        return { kind, name, address, asn, ...state }
      }),
    )
    this.#reportAway(byName)
  }

  #set(sessions: readonly BgpSession[]): void {
    const { pid } = this.#bird
    const { asn = 0 } = (this.#trial?.source ?? this.#good ?? this.#read.source)?.conf ?? {}
    const next = {
      asn,
      ...(pid !== undefined && { pid }),
      restarts: this.#restarts,
      ...(this.#programs === 'bird' && { programs: this.#programs }),
      announced: this.#made.announced,
      sessions,
    }
    if (Bun.deepEquals(this.#now.bgp, next)) return
    this.#now.bgp = next
    this.#changed()
  }

  #reportAway(states: ReadonlyMap<string, SessionState>): void {
    const [now, away]: [number, string[]] = [performance.now(), []]
    const names = new Set(this.#made.sessions.map(({ protocol }) => protocol))
    for (const known of [this.#awaySince, this.#reasons])
      for (const protocol of known.keys()) if (!names.has(protocol)) known.delete(protocol)
    for (const session of this.#made.sessions) {
      const { state = 'Unknown', reason } = states.get(session.protocol) ?? {}
      if (state === UP) this.#awaySince.delete(session.protocol)
      else {
        const since = this.#awaySince.get(session.protocol) ?? now
        this.#awaySince.set(session.protocol, since)
        if (now - since >= AWAY_MS) away.push(`${called(session)} is ${phrase(state, reason)}`)
      }
    }
    const text = `BGP sessions are away: ${firstOf(away, NAMED)} (see: plumb bgp)`
    this.#context.failures.report('sessions of BGP', away.length === 0 ? [] : [failureOf(text)])
  }
}

const UP = 'Established'
const NODE_KINDS: readonly KindName[] = ['nodes']
const GOES_ON = '; BGP goes on as before'

function failureOf(text: string): Failure {
  return { scope: 'part', text }
}

function called({ name, address }: Session): string {
  return name === address ? name : `${name} (${address})`
}

function phrase(state: string, reason: string | undefined): string {
  return reason === undefined ? state : `${state}, ${reason}`
}
