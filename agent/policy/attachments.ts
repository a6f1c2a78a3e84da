import { CniError, CODE } from '../../lib/text/errors.ts'
import type { ObjectSource } from '../cluster/source.ts'
import { type Admission, Waiting } from './admission.ts'
import { type Endpoint, Endpoints, journaled, podKey } from './endpoints.ts'
import { POLICY_KINDS } from './state.ts'

/** How long a DEL waits for the kernel, in milliseconds. */
const RELEASE_MS = 5000
/** How often the journal has to lack an attachment. */
const LOOKS = 3

/** What the attachments ask and tell the part that programs them. */
interface Programmer {
  /** The addresses of a pod may have changed. */
  changed(pod: string): void
  /** A pod begins. Its link is made meanwhile. */
  begins(): void
  /** Why the last step failed. */
  trouble(): string
}

/**
 * The attachments of the pods of this node: taken at ADD, given back at DEL, and taken from the journal by an agent that
 * starts. ADD and DEL wait until the kernel has the result.
 */
export class Attachments implements Admission {
  readonly endpoints: Endpoints
  readonly #objects: ObjectSource
  readonly #programmer: Programmer
  readonly #waiting = new Waiting()

  constructor(objects: ObjectSource, programmer: Programmer) {
    this.#objects = objects
    this.#programmer = programmer
    this.endpoints = new Endpoints(programmer.changed, (key) => objects.objects.pods.get(key))
  }

  /** Whether an ADD or a DEL waits for a step. */
  get isAwaited(): boolean {
    return !this.#waiting.isEmpty
  }

  /** Begins a step. Call what it gives after the step has ended well. */
  begin(): () => void {
    return this.#waiting.begin()
  }

  /**
   * Takes the attachments of the journal. Call this as soon as the socket listens. An ADD that did not reach the socket
   * has written its attachment before, and all others come by the socket.
   */
  restore(): void {
    for (const one of journaled()) this.endpoints.admit(one)
  }

  /**
   * Forgets what the journal lacks: a DEL that did not reach the agent took its attachment out. A listing may lack a file
   * that is written meanwhile.
   */
  forgetGone(): void {
    const gone = () => {
      const there = new Set(journaled().map(({ containerId, ifname }) => `${containerId} ${ifname}`))
      return this.endpoints.all().filter(({ containerId, ifname }) => !there.has(`${containerId} ${ifname}`))
    }
    let missing = gone()
    for (let looks = 0; looks < LOOKS && missing.length > 0; looks++) {
      const again = new Set(gone())
      missing = missing.filter((one) => again.has(one))
    }
    for (const one of missing) this.endpoints.release(one)
  }

  ready(): void {
    if (!this.#objects.isComplete(POLICY_KINDS))
      throw new CniError(
        CODE.tryLater,
        `Cannot apply network policy: the agent does not know the objects of ${this.#objects.origin} yet`,
      )
  }

  async admit(endpoint: Endpoint, waitMs: number, signal: AbortSignal): Promise<void> {
    this.endpoints.admit(endpoint)
    this.#programmer.begins()
    const isHome = () => this.#objects.objects.namespaces.has(endpoint.namespace)
    const isKnown = () => this.#objects.isComplete(POLICY_KINDS) && this.endpoints.isKnown(endpoint) && isHome()
    await this.#waiting.wait(isKnown, waitMs, signal, () => this.#whyNot(endpoint))
  }

  async release(one: Pick<Endpoint, 'containerId' | 'ifname'>, signal: AbortSignal): Promise<void> {
    if (this.endpoints.release(one) === undefined) return
    this.ready()
    const isAny = () => true
    await this.#waiting.wait(isAny, RELEASE_MS, signal, () => this.#programmer.trouble())
  }

  #whyNot(endpoint: Endpoint): string {
    if (!this.#objects.isComplete(POLICY_KINDS))
      return `the agent does not know the objects of ${this.#objects.origin} yet`
    if (this.endpoints.isKnown(endpoint)) {
      const isHome = this.#objects.objects.namespaces.has(endpoint.namespace)
      return isHome ? this.#programmer.trouble() : `${this.#objects.origin} has no Namespace ${endpoint.namespace}`
    }
    const key = podKey(endpoint)
    const other = this.#objects.objects.pods.get(key)?.uid
    const has = other === undefined ? '' : `, but one of the UID ${other}`
    const uid = endpoint.uid === undefined || other === undefined ? '' : ` of the UID ${endpoint.uid}`
    return `${this.#objects.origin} has no Pod ${key}${uid}${has}`
  }
}
