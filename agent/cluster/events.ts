import { log, warn } from '../../lib/os/log.ts'
import { UnavailableError } from '../scheduler/follow.ts'
import { delays, makeNotification, pause } from '../scheduler/pause.ts'
import { type Api, ApiError } from './api.ts'

/** What an Event is about. */
export type Subject =
  | { readonly kind: 'Node' }
  | { readonly kind: 'Pod'; readonly namespace: string; readonly name: string }
/** Something that the cluster's users are to know. */
export interface Announcement {
  readonly about: Subject
  readonly type: 'Warning' | 'Normal'
  /** One word in CamelCase, or the code of a check: `DR1`. */
  readonly reason: string
  readonly message: string
}

/** What two announcements share that say the same. Numbers in a sentence change while the trouble is the same. */
export function keyOf({ about, reason, message }: Announcement): string {
  const who = about.kind === 'Node' ? '' : `${about.namespace}/${about.name}`
  return [who, reason, message.replace(/\d+/g, '#')].join('\n')
}

/** An Event of the same words within this time counts on in the earlier one. Milliseconds. */
const SAME_MS = 3_600_000
/** The Events that are remembered, and those that wait for the server. */
const [MOST_KNOWN, MOST_WAITING] = [200, 50]
/** So many Events may come at once, and then one in this time. Milliseconds. */
const [BURST, EVERY_MS] = [20, 30_000]
/** The kubelet shortens messages to this length, too (client-go, tools/record). Characters. */
const LONGEST = 1024
/** How long a server that refuses Events is left alone, and the pauses between other attempts. Milliseconds. */
const [REFUSED_MS, LEAST_MS, MOST_MS] = [600_000, 1000, 30_000]
/** The namespace of Events about Nodes, which have none (kubelet and node controller use it). */
const NODES_NAMESPACE = 'default'
const COMPONENT = 'plumb-agent'

interface Kept {
  readonly path: string
  readonly at: number
  readonly count: number
}

/**
 * Writes Events to the cluster, one after another. Never throws: a node needs no Events. Repeats of an Event raise its
 * count, and a burst is cut off.
 */
export class ClusterEvents {
  readonly #api: Api
  readonly #node: string
  readonly #waiting: { readonly one: Announcement; readonly at: number }[] = []
  readonly #known = new Map<string, Kept>()
  readonly #came = makeNotification()
  #credit = { left: BURST, at: performance.now() }
  #dropped = 0

  /** `node` is the name of this node in the cluster. Sends nothing before `run`. */
  constructor(api: Api, node: string) {
    this.#api = api
    this.#node = node
  }

  /** Takes an Event to be written. The oldest one is dropped when too many wait. */
  post(one: Announcement): void {
    if (!this.#isAffordable()) {
      if (this.#dropped++ === 0) log(`agent: too many Events at once, not written: ${one.reason}: ${one.message}`)
      return
    }
    this.#dropped = 0
    this.#waiting.push({ one, at: Date.now() })
    if (this.#waiting.length > MOST_WAITING) this.#waiting.shift()
    this.#came.notify()
  }

  /** Writes what was posted, until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    let rests = delays(LEAST_MS, MOST_MS)
    while (!signal.aborted) {
      const [first] = this.#waiting
      if (!first) {
        await this.#came.notified(signal)
        continue
      }
      try {
        await this.#write(first.one, first.at, signal)
        rests = delays(LEAST_MS, MOST_MS)
      } catch (cause) {
        if (!(cause instanceof UnavailableError)) throw cause
        const isRefused = cause instanceof ApiError && cause.status >= 400 && cause.status < 500 && cause.status !== 429
        if (!isRefused) {
          await pause(rests.next().value, signal)
          continue
        }
        // A namespace that is gone needs no Events.
        if (cause.status === 403) {
          warn(`agent: Cannot write Events: ${cause.message}`)
          await pause(REFUSED_MS, signal)
        }
      }
      if (this.#waiting[0] === first) this.#waiting.shift()
    }
  }

  async #write(one: Announcement, at: number, signal: AbortSignal): Promise<void> {
    const { about, type, reason, message } = one
    const [namespace, name] = about.kind === 'Node' ? [NODES_NAMESPACE, this.#node] : [about.namespace, about.name]
    const list = `/api/v1/namespaces/${namespace}/events`
    const key = keyOf(one)
    const now = `${new Date(at).toISOString().slice(0, 19)}Z`
    const text = message.slice(0, LONGEST)
    const kept = this.#known.get(key)
    if (kept && at - kept.at < SAME_MS) {
      const count = kept.count + 1
      try {
        await this.#api.patch(kept.path, { count, message: text, lastTimestamp: now }, signal)
        this.#remember(key, { ...kept, at, count })
        return
      } catch (cause) {
        // The cluster forgets Events after an hour, or as it is set up.
        if (!(cause instanceof ApiError && cause.status === 404)) throw cause
      }
    }
    // As client-go names them: the subject, and a number that grows.
    const id = `${name.slice(0, 230)}.${(BigInt(at) * 1_000_000n + BigInt(this.#known.size)).toString(16)}`
    await this.#api.create(
      list,
      {
        metadata: { name: id, namespace },
        // The kubelet gives a Node its name as uid, and `kubectl describe node` asks for that.
        involvedObject: {
          apiVersion: 'v1',
          kind: about.kind,
          name,
          ...(about.kind === 'Node' ? { uid: name } : { namespace }),
        },
        type,
        reason,
        message: text,
        count: 1,
        firstTimestamp: now,
        lastTimestamp: now,
        source: { component: COMPONENT, host: this.#node },
        reportingComponent: COMPONENT,
        reportingInstance: this.#node,
      },
      signal,
    )
    this.#remember(key, { path: `${list}/${id}`, at, count: 1 })
  }

  #remember(key: string, kept: Kept): void {
    this.#known.delete(key)
    this.#known.set(key, kept)
    const [oldest] = this.#known.keys()
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest)
  }

  #isAffordable(): boolean {
    const now = performance.now()
    const { left, at } = this.#credit
    const credit = Math.min(BURST, left + (now - at) / EVERY_MS)
    const isEnough = credit >= 1
    this.#credit = { left: isEnough ? credit - 1 : credit, at: now }
    return isEnough
  }
}
