import { linkFacts } from '../../lib/os/links.ts'
import { isThere } from '../../lib/os/nftables.ts'
import { maybeSysctl } from '../../lib/os/sysctls.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { type Admission, unknownAddresses, Waiting } from '../policy/admission.ts'
import { type Cluster, type Compiled, compile, POLICY_KINDS } from '../policy/compile.ts'
import { type Endpoint, Endpoints, podKey } from '../policy/endpoints.ts'
import { journaled } from '../policy/journaled.ts'
import { load, step, TABLE } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import { DONE, type Outcome, type Part, WAITING } from '../scheduler/part.ts'
import type { Wakes } from '../scheduler/wakes.ts'
import type { Context } from './context.ts'
import type { Repairs } from './repairs.ts'

const TOOL = ['nft', '-f', '-']
/** Refused objects that the status names at once. */
const NAMED = 20
/** How long a DEL waits for the kernel, in milliseconds. */
const RELEASE_MS = 5000
/** When a new link is looked at, and how often the setting of a node without it is. Milliseconds. */
const BRIDGES_MS = 2000
const NO_STEP = 'nft has not answered yet'

/** Keeps NetworkPolicy in the kernel: the sets, chains and elements of the pods of this node. The table stays when the agent ends. */
export class PolicyPart implements Part, Admission {
  readonly name = 'policy'
  readonly trouble = 'Cannot program NetworkPolicy'
  readonly quietMs: number
  readonly wakes: Wakes
  readonly #context: Context
  readonly #objects: ObjectSource
  readonly #repairs: Repairs
  /** What the last transaction left in the kernel. Undefined when the kernel may have anything else. */
  #now: Compiled | undefined
  #isLoaded = false
  readonly #endpoints: Endpoints
  readonly #waiting = new Waiting()
  /** Why the last step failed. */
  #trouble = NO_STEP

  constructor(context: Context, objects: ObjectSource, wakes: Wakes, repairs: Repairs) {
    this.#context = context
    this.#objects = objects
    this.wakes = wakes
    this.#repairs = repairs
    this.quietMs = context.quietMs
    objects.changes(POLICY_KINDS, () => (this.#waiting.isEmpty ? wakes.poke('objects') : wakes.hurry('objects')))
    this.#endpoints = new Endpoints(() => wakes.hurry('attachments'))
    for (const one of journaled()) this.#endpoints.admit(one)
  }

  doubt(): void {
    this.#now = undefined
    // A DEL that did not reach the agent took its attachment out of the journal.
    const there = new Set(journaled().map(({ containerId, ifname }) => `${containerId} ${ifname}`))
    for (const one of this.#endpoints.all()) if (!there.has(`${one.containerId} ${one.ifname}`)) this.#endpoints.release(one, (key) => this.#objects.objects.pods.get(key))
  }

  ready(): void {
    if (!this.#objects.isComplete(POLICY_KINDS)) throw new CniError(CODE.tryLater, `Cannot apply network policy: the agent does not know the objects of ${this.#objects.origin} yet`)
  }

  async admit(endpoint: Endpoint, waitMs: number, signal: AbortSignal): Promise<void> {
    this.#endpoints.admit(endpoint)
    // The link is made meanwhile.
    this.wakes.poke('bridges', BRIDGES_MS)
    const isKnown = () => this.#objects.isComplete(POLICY_KINDS) && this.#isKnown(endpoint)
    await this.#waiting.wait(isKnown, waitMs, signal, () => this.#whyNot(endpoint))
  }

  async release(one: Pick<Endpoint, 'containerId' | 'ifname'>, signal: AbortSignal): Promise<void> {
    if (this.#endpoints.release(one, (key) => this.#objects.objects.pods.get(key)) === undefined) return
    this.ready()
    await this.#waiting.wait(
      () => true,
      RELEASE_MS,
      signal,
      () => this.#trouble,
    )
  }

  #isKnown(endpoint: Endpoint): boolean {
    return this.#objects.objects.pods.has(podKey(endpoint))
  }

  // Frames between two pods of one bridge meet the rules only by way of br_netfilter.
  #unfiltered(): readonly Failure[] {
    const isBridged = () => this.#context.isBridged || this.#endpoints.all().some(({ link }) => link !== undefined && linkFacts(link)?.master !== undefined)
    if (maybeSysctl('bridge/bridge-nf-call-iptables') === '1' || !isBridged()) return []
    this.wakes.poke('bridges', BRIDGES_MS)
    return [{ scope: 'node', text: 'Cannot apply network policy between pods of one bridge: net.bridge.bridge-nf-call-iptables is not 1; load br_netfilter and set it' }]
  }

  #whyNot(endpoint: Endpoint): string {
    if (!this.#objects.isComplete(POLICY_KINDS)) return `the agent does not know the objects of ${this.#objects.origin} yet`
    return this.#isKnown(endpoint) ? this.#trouble : `${this.#objects.origin} has no Pod ${podKey(endpoint)}`
  }

  async step(): Promise<Outcome> {
    // The table of an earlier run stays until everything is known.
    if (!this.#objects.isComplete(POLICY_KINDS)) return WAITING
    const written = this.#waiting.begin()
    const closed = unknownAddresses(this.#endpoints.all(), (one) => this.#isKnown(one))
    const wanted = compile(this.#cluster(), this.#context.node, closed)
    // A table that is gone is somebody else's work, or this part's own: a load replaces the table.
    if (this.#now && !isThere('inet', TABLE)) this.#now = undefined
    if (this.#now) await this.#run(step(this.#now, wanted).join('\n'))
    else await this.#reload(wanted)
    this.#now = wanted
    written()
    const failures = this.#objects
      .refused(POLICY_KINDS)
      .slice(0, NAMED)
      .map((text): Failure => ({ scope: 'part', text: `${text}; the other objects are enforced` }))
    this.#context.failures.report('objects of policy', failures)
    this.#context.failures.report('bridges', this.#unfiltered())
    return DONE
  }

  // The objects, with the addresses that ADD gave.
  #cluster(): Cluster {
    const { objects } = this.#objects
    const pods = new Map(objects.pods)
    for (const [key, pod] of pods) {
      const ips = this.#endpoints.addressesOf(pod)
      if (ips !== pod.ips) pods.set(key, { ...pod, ips })
    }
    return { ...objects, pods }
  }

  // One transaction replaces the table, so that no packet meets half of it. It is a repair when the kernel had something else before.
  async #reload(wanted: Compiled): Promise<void> {
    const before = this.#isLoaded ? await this.#listing() : ''
    await this.#run(load(wanted))
    if (this.#isLoaded && (await this.#listing()) !== before) this.#repairs.ofPart(this, 'nft', [`nft table ${TABLE}`])
    this.#isLoaded = true
  }

  async #listing(): Promise<string> {
    return (await this.#context.run(['nft', '-s', 'list', 'table', 'inet', TABLE], '')).stdout
  }

  async #run(text: string): Promise<void> {
    if (text === '') return
    this.#now = undefined
    const { status, stderr } = await this.#context.run(TOOL, `${text}\n`)
    this.#trouble = status === 0 ? NO_STEP : `nft: ${stderr.trim().split('\n', 1)[0] || `ended with status ${status}`}`
    if (status !== 0) throw new Error(this.#trouble)
  }
}
