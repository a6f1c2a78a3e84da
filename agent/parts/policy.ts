import { isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { BRIDGE_FILTERS, maybeSysctl, sysctlName } from '../../lib/os/sysctls.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Changes } from '../cluster/changes.ts'
import { FORMER_POLICY_KINDS } from '../cluster/kinds.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { jointly } from '../kernel/jointly.ts'
import { both } from '../lease/families.ts'
import { type Admission, Waiting } from '../policy/admission.ts'
import { type Comparison, comparisonOf, type Drafts, MOST } from '../policy/comparison.ts'
import { Counters, type PolicyCounts } from '../policy/counters.ts'
import { followDrops, lineOf } from '../policy/drops.ts'
import { type Endpoint, Endpoints, journaled, podKey } from '../policy/endpoints.ts'
import { type Lives, livesBy, review, reviewEnded } from '../policy/flows.ts'
import { Guard } from '../policy/guard.ts'
import { type CellView, cellOf, matrixOf, type PolicyMatrix } from '../policy/matrix.ts'
import { type PodPlaces, placesOf } from '../policy/places.ts'
import { foreign, load, update } from '../policy/program.ts'
import { POLICY_KINDS, PolicyState } from '../policy/state.ts'
import { logOf, SIDES, TABLE, type TableOptions } from '../policy/table.ts'
import {
  addressesOfNode,
  detail,
  objectsOf,
  type PodDetail,
  type PodSummary,
  type PolicyKnowledge,
  summaries,
} from '../policy/view.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import { inPieces } from '../scheduler/pieces.ts'
import type { Queue } from '../scheduler/queue.ts'
import { initialState, type NodeState, withStep } from '../state/condition.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

/** Refused objects that the status names at once. */
const NAMED = 20
/** How long a DEL waits for the kernel, in milliseconds. */
const RELEASE_MS = 5000
/** When a new link is looked at, and how often the setting of a node without it is. Milliseconds. */
const BRIDGES_MS = 2000
/** How long a step waits until the connections that are no longer allowed have ended. Milliseconds. */
const ENDING_MS = 250
/** The matrix is made again after so many times the time that it took. */
const MATRIX_SHARE = 10
/** When connections are looked at again after a failure. Milliseconds. */
const AGAIN_MS = 2000
/** How often ended connections are looked at that a change may allow again. Milliseconds. */
const REVIVE_MS = 500
/** How often the journal has to lack an attachment. */
const LOOKS = 3
/** The kinds that policy enforces, and those that it only names. */
const FOLLOWED = [...POLICY_KINDS, ...FORMER_POLICY_KINDS]
const NO_STEP = 'nft has not answered yet'

/**
 * Keeps NetworkPolicy in the kernel: the sets, chains and elements of the pods of this node. The table stays when the
 * agent ends.
 */
export class PolicyPart implements Part, Admission {
  readonly name = 'policy'
  readonly trouble = 'Cannot program NetworkPolicy'
  readonly quietMs = 0
  readonly queue: Queue
  readonly #context: Context
  readonly #now: NodeState
  readonly #objects: ObjectSource
  readonly #repairs: Repairs
  readonly #changes: Changes
  readonly #state: PolicyState
  readonly #endpoints: Endpoints
  readonly #waiting = new Waiting()
  /** The addresses whose connections are not looked at yet. */
  #tightened: ReadonlySet<Ip> = new Set()
  /** Some connections may be ended in the kernel: an earlier agent may have ended them. */
  #hasEnded = true
  /** Something has changed since they were looked at. */
  #mayRevive = false
  #revivedAt = Number.NEGATIVE_INFINITY
  #ending: Promise<void> | undefined
  readonly #guard = new Guard()
  #places: PodPlaces
  readonly #counters: Counters
  #steps = initialState().steps
  /** Why the last step failed. */
  #trouble = NO_STEP
  /** The options of the table that the last transaction left in the kernel. Undefined when it may have others. */
  #loaded: string | undefined
  /** The agent listens to what the rules log. */
  #matrix: { readonly value: PolicyMatrix; readonly until: number } | undefined
  #isListening = false
  /** The last question that takes long. */
  #answering: Promise<unknown> = Promise.resolve()

  constructor(context: Context, objects: ObjectSource, now: NodeState, queue: Queue, repairs: Repairs) {
    this.#context = context
    this.#now = now
    this.#objects = objects
    this.queue = queue
    this.#repairs = repairs
    this.#changes = objects.changes(FOLLOWED, () =>
      this.#waiting.isEmpty ? queue.add('objects') : queue.addUrgent('objects'),
    )
    this.#endpoints = new Endpoints(
      (key) => {
        this.#changes.note('pods', key)
        queue.addUrgent('attachments')
      },
      (key) => objects.objects.pods.get(key),
    )
    this.#state = new PolicyState(objects.objects, context.node, this.#endpoints)
    this.#counters = new Counters(context.run, () => this.#state.counted())
    this.#places = placesOf(this.#endpoints, this.#state.locals, true)
  }

  /**
   * Takes the attachments of the journal. Call this as soon as the socket listens. An ADD that did not reach the socket
   * has written its attachment before, and all others come by the socket.
   */
  restore(): void {
    for (const one of journaled()) this.#endpoints.admit(one)
    this.#places = placesOf(this.#endpoints, this.#state.locals, true)
  }

  invalidate(): void {
    this.#state.elements.invalidate()
    this.#guard.invalidate()
  }

  // A DEL that did not reach the agent took its attachment out of the journal. A listing may lack a file that is
  // written meanwhile.
  #forgetGone(): void {
    const gone = () => {
      const there = new Set(journaled().map(({ containerId, ifname }) => `${containerId} ${ifname}`))
      return this.#endpoints.all().filter(({ containerId, ifname }) => !there.has(`${containerId} ${ifname}`))
    }
    let missing = gone()
    for (let looks = 0; looks < LOOKS && missing.length > 0; looks++) {
      const again = new Set(gone())
      missing = missing.filter((one) => again.has(one))
    }
    for (const one of missing) this.#endpoints.release(one)
  }

  ready(): void {
    if (!this.#objects.isComplete(POLICY_KINDS))
      throw new CniError(
        CODE.tryLater,
        `Cannot apply network policy: the agent does not know the objects of ${this.#objects.origin} yet`,
      )
  }

  known(): PolicyKnowledge {
    this.ready()
    const { subnets, isAudit } = this.#options()
    return { cluster: this.#objects.objects, state: this.#state, subnets, isAudit }
  }

  /** The pods of this node with their policies. Empty while the objects of the cluster are not known. */
  view(): PodSummary[] {
    return this.#objects.isComplete(POLICY_KINDS) ? summaries(this.known()) : []
  }

  /** One pod of this node with its rules. Undefined for another pod, and while the objects are not known. */
  detail(pod: string): PodDetail | undefined {
    const isKnown = this.#objects.isComplete(POLICY_KINDS) && this.#state.locals.has(pod)
    return isKnown ? detail(this.known(), pod) : undefined
  }

  /**
   * Which namespaces reach which. Undefined while the objects are not known. It may be some seconds old, so that many
   * readers take a tenth of a core at most.
   */
  matrix(): Promise<PolicyMatrix | undefined> {
    return this.#inTurn(async () => {
      if (!this.#objects.isComplete(POLICY_KINDS)) return undefined
      const begun = performance.now()
      if (this.#matrix && begun < this.#matrix.until) return this.#matrix.value
      const value = await inPieces(matrixOf(this.known()))
      const now = performance.now()
      this.#matrix = { value, until: now + MATRIX_SHARE * (now - begun) }
      return value
    })
  }

  /** The pods behind a cell of the matrix. Undefined while the objects are not known. */
  cell(from: string, to: string): Promise<CellView | undefined> {
    return this.#inTurn(async () =>
      this.#objects.isComplete(POLICY_KINDS) ? inPieces(cellOf(this.known(), from, to)) : undefined,
    )
  }

  /**
   * What policies would change that nobody has applied. Throws CniError 11 while the objects are not known, and ValueError
   * for too much work.
   */
  comparison(drafts: Drafts): Promise<Comparison> {
    return this.#inTurn(async () => inPieces(comparisonOf(this.known(), drafts), MOST))
  }

  /** Whether the objects of the cluster are known. */
  get isComplete(): boolean {
    return this.#objects.isComplete(POLICY_KINDS)
  }

  // Such questions are answered one after another, so that many of them leave the loop as free as one.
  #inTurn<T>(answer: () => Promise<T>): Promise<T> {
    const turn = this.#answering.then(answer)
    this.#answering = turn.catch(() => {})
    return turn
  }

  /** The counters of the table. Throws Error when nft does not give them. */
  counts(): Promise<PolicyCounts> {
    return this.#counters.read()
  }

  async admit(endpoint: Endpoint, waitMs: number, signal: AbortSignal): Promise<void> {
    this.#endpoints.admit(endpoint)
    // The link is made meanwhile.
    this.queue.add('bridges', BRIDGES_MS)
    const isHome = () => this.#objects.objects.namespaces.has(endpoint.namespace)
    const isKnown = () => this.#objects.isComplete(POLICY_KINDS) && this.#endpoints.isKnown(endpoint) && isHome()
    await this.#waiting.wait(isKnown, waitMs, signal, () => this.#whyNot(endpoint))
  }

  async release(one: Pick<Endpoint, 'containerId' | 'ifname'>, signal: AbortSignal): Promise<void> {
    if (this.#endpoints.release(one) === undefined) return
    this.ready()
    const isAny = () => true
    await this.#waiting.wait(isAny, RELEASE_MS, signal, () => this.#trouble)
  }

  /** Whether pods of this node are, or may be, ports of a bridge. */
  isBridged(): boolean {
    const { pods, strangers } = this.#places
    return this.#context.isBridged || strangers.length > 0 || pods.some(({ isPort }) => isPort)
  }

  // Frames between two pods of one bridge meet the rules only by way of br_netfilter.
  #unfiltered(): readonly Failure[] {
    const wrong = BRIDGE_FILTERS.filter((name) => maybeSysctl(name) !== '1')
    if (wrong.length === 0 || !this.isBridged()) return []
    this.queue.add('bridges', BRIDGES_MS)
    const what = 'Cannot apply network policy between pods of one bridge'
    const names = wrong.map(sysctlName)
    const [verb, it] = names.length === 1 ? ['is', 'it'] : ['are', 'them']
    const why = `${names.join(' and ')} ${verb} not 1; load br_netfilter and set ${it}`
    return [{ scope: 'node', text: `${what}: ${why}` }]
  }

  #whyNot(endpoint: Endpoint): string {
    if (!this.#objects.isComplete(POLICY_KINDS))
      return `the agent does not know the objects of ${this.#objects.origin} yet`
    if (this.#endpoints.isKnown(endpoint)) {
      const isHome = this.#objects.objects.namespaces.has(endpoint.namespace)
      return isHome ? this.#trouble : `${this.#objects.origin} has no Namespace ${endpoint.namespace}`
    }
    const key = podKey(endpoint)
    const other = this.#objects.objects.pods.get(key)?.uid
    const has = other === undefined ? '' : `, but one of the UID ${other}`
    const uid = endpoint.uid === undefined || other === undefined ? '' : ` of the UID ${endpoint.uid}`
    return `${this.#objects.origin} has no Pod ${key}${uid}${has}`
  }

  async step(why: readonly string[]): Promise<Outcome> {
    if (why.includes('resync')) this.#forgetGone()
    const options = this.#options()
    if (!this.#objects.isComplete(POLICY_KINDS)) {
      // The table of an earlier run stays until everything is known. Without one, no pod may be open by chance.
      if (options.subnets.length > 0 && !isThere('inet', TABLE))
        await load(new PolicyState(this.#objects.objects, ''), options, this.#context.run)
      this.#reportObjects()
      return WAITING
    }
    const [written, began] = [this.#waiting.begin(), performance.now()]
    const changed = this.#changes.take()
    this.#state.apply(changed)
    // A look that goes on may be about to end some by what was known before.
    if (changed.size > 0) this.#mayRevive ||= this.#hasEnded || this.#ending !== undefined
    this.#places = placesOf(this.#endpoints, this.#state.locals, options.isAudit)
    try {
      const { run } = this.#context
      const works = [(own: Run) => this.#program(options, own), ...this.#guard.works(this.#places)]
      // After a failure each work is by itself, so that one that cannot be done holds back no other.
      const singly = () => Promise.all(works.map((work) => work(run)))
      const repaired = (await (this.#trouble === NO_STEP ? jointly(run, works) : singly())).flat()
      if (repaired.length > 0) this.#repairs.ofPart(this, 'nft', repaired)
    } catch (cause) {
      this.#trouble = (cause as Error).message
      throw cause
    }
    this.#trouble = NO_STEP
    written()
    await this.#endTightened()
    this.#steps = withStep(this.#steps, (performance.now() - began) / 1000)
    this.#publish()
    this.#context.failures.report('bridges', this.#unfiltered())
    this.#reportObjects()
    return DONE
  }

  #reportObjects(): void {
    const trouble = this.#objects.trouble(FOLLOWED)
    this.#now.unknownObjects = { ...this.#now.unknownObjects, policy: trouble }
    const isComplete = this.#objects.isComplete(POLICY_KINDS)
    const more = isComplete ? '; the last known objects are enforced' : ''
    const refused = this.#objects.refused(FOLLOWED).slice(0, NAMED)
    this.#context.failures.report('objects of policy', [
      // Without all objects no pod can start.
      ...(trouble === undefined ? [] : [{ scope: isComplete ? 'part' : 'node', text: `${trouble}${more}` } as const]),
      ...refused.map((text) => ({ scope: 'part', text: `${text}; the other objects are enforced` }) as const),
    ])
  }

  #publish(): void {
    const { policies, clusterPolicies } = this.#objects.objects
    const locals = [...this.#state.locals.values()]
    const [ingress, egress] = SIDES.map((side) => locals.filter(({ chains }) => chains[side] !== undefined).length)
    const refused = this.#objects.refused(FOLLOWED)
    this.#now.policy = {
      policies: policies.size,
      clusterPolicies: clusterPolicies.size,
      pods: locals.length,
      selected: { ingress: ingress ?? 0, egress: egress ?? 0 },
      closed: locals.filter(({ isClosed }) => isClosed).length,
      refused: refused.length,
      steps: this.#steps,
    }
  }

  #options(): TableOptions {
    const lease = this.#now.served ?? this.#now.lease
    const { isAudit, keepsEstablished } = this.#context.enforcement
    return {
      subnets: lease ? both(lease.subnets) : both(this.#context.before ?? {}),
      isAudit,
      keepsEstablished,
      ...(this.#isListening && { log: logOf }),
    }
  }

  // Gives what it had to repair.
  async #program(options: TableOptions, run: Run): Promise<readonly string[]> {
    const state = this.#state
    const key = JSON.stringify([options.subnets, options.log !== undefined])
    const mayDiffer = state.elements.mayDiffer && !this.#repairs.isHeld(this)
    const before = this.#loaded
    // A failed transaction leaves what was there. The next step makes the whole table again.
    this.#loaded = undefined
    if (before === key && !(mayDiffer && !isThere('inet', TABLE))) {
      const { repaired } = await update(state, run)
      const wrong = mayDiffer ? foreign(state, options) : undefined
      if (wrong !== undefined) {
        await load(state, options, run)
        // Meanwhile connections may have begun that no policy allows.
        state.tightenAll()
      }
      this.#loaded = key
      return [...repaired, ...(wrong === undefined ? [] : [wrong])]
    }
    await load(state, options, run)
    state.tightenAll()
    this.#loaded = key
    return before === key ? [`nft table ${TABLE}`] : []
  }

  // A policy that has become tighter ends the connections that it no longer allows. After a start, all connections of
  // local pods are checked. The kernel may track hundreds of thousands: then the step goes on, and the work beside it.
  async #endTightened(): Promise<void> {
    const [tightened, { isAudit, keepsEstablished }] = [this.#state.takeTightened(), this.#context.enforcement]
    if (isAudit || keepsEstablished) return
    this.#tightened = this.#tightened.union(tightened)
    if (this.#tightened.size === 0 && !this.#mayRevive) return
    this.#ending ??= this.#reviewAll().finally(() => {
      this.#ending = undefined
    })
    await Promise.race([this.#ending, new Promise((resolve) => setTimeout(resolve, ENDING_MS).unref())])
  }

  async #reviewAll(): Promise<void> {
    while (this.#tightened.size > 0) {
      const addresses = this.#tightened
      this.#tightened = new Set()
      try {
        if ((await review(addresses, this.#lives())) > 0) this.#hasEnded = true
        this.#context.failures.report('connections of policy', [])
      } catch (cause) {
        this.#tightened = this.#tightened.union(addresses)
        this.#lookAgain(cause)
        return
      }
    }
    if (!this.#mayRevive) return
    // The kernel walks its whole table for each look.
    const waitMs = this.#revivedAt + REVIVE_MS - performance.now()
    if (waitMs > 0) {
      this.queue.add('connections', waitMs)
      return
    }
    this.#mayRevive = false
    this.#revivedAt = performance.now()
    try {
      this.#hasEnded = (await reviewEnded(this.#lives())) > 0
      this.#context.failures.report('connections of policy', [])
    } catch (cause) {
      this.#mayRevive = true
      this.#lookAgain(cause)
    }
  }

  #lookAgain(cause: unknown): void {
    this.#context.failures.report('connections of policy', [{ scope: 'part', text: (cause as Error).message }])
    this.queue.add('connections', AGAIN_MS)
  }

  // What connections are held against: the objects of now.
  #lives(): Lives {
    return livesBy(this.#state, this.#objects.objects, addressesOfNode())
  }

  /** Logs the packets that the table refuses until the signal, when the settings ask for that. Never throws. */
  async followDrops(signal: AbortSignal): Promise<void> {
    const { isLogged, isAudit } = this.#context.enforcement
    if (!isLogged) return
    const podAt = (ip: Ip) => this.#state.podAt(ip)
    const listener = {
      dropped: (packet: Parameters<typeof lineOf>[0]) => {
        const line = lineOf(packet, podAt, objectsOf(this.#objects.objects), isAudit)
        this.#context.log(`policy: ${line}`)
        this.#context.refused(line)
      },
      failing: (why: string | undefined) => {
        const text = `Cannot log what network policy refuses: ${why}`
        this.#context.failures.report('log of policy', why === undefined ? [] : [{ scope: 'part', text }])
        this.#isListening = why === undefined
        this.queue.add('log')
      },
    }
    await followDrops(listener, signal)
  }
}
