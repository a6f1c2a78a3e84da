import type { ChangedKeys } from '../cluster/changes.ts'
import { type Durations, noDurations, withDuration } from '../scheduler/durations.ts'

/** The Services of this node. */
export interface ServicesStatus {
  readonly services: number
  /** Addresses and ports at which clients ask. */
  readonly frontends: number
  /** Endpoints, counted once for each frontend that leads to them. */
  readonly endpoints: number
  /** The time from the change of an EndpointSlice to the kernel, by `PROGRAMMING_BUCKETS`. */
  readonly programming: Durations
  /** UDP connections to former endpoints that were forgotten. */
  readonly forgotten: number
  /** The steps that took changes of objects to the kernel. */
  readonly sync: ServicesSync
}

/** How changes of Services and slices come to the kernel, as kube-proxy counts it. Times are milliseconds since 1970. */
export interface ServicesSync {
  /** How long the steps took, by `SYNC_BUCKETS`. */
  readonly took: Durations
  /** When the kernel had all changes last, and when the last change came. Absent as long as there was none. */
  readonly doneAt?: number
  readonly queuedAt?: number
  /** Changed objects so far. */
  readonly services: number
  readonly slices: number
}

/** The upper bounds of the histogram of programming times, in seconds: those of kube-proxy (pkg/proxy/metrics). */
export const PROGRAMMING_BUCKETS: readonly number[] = [
  0.25,
  0.5,
  ...range(1, 59, 1),
  ...range(60, 115, 5),
  ...range(120, 300, 30),
]

/** The upper bounds of the histogram of sync times, in seconds: those of kube-proxy (pkg/proxy/metrics). */
export const SYNC_BUCKETS: readonly number[] = Array.from({ length: 15 }, (_, i) => 0.001 * 2 ** i)

/** How changes of Services come to the kernel: the figures of one run of the agent. */
export class ServicesFigures {
  #programming = noDurations(PROGRAMMING_BUCKETS)
  #sync: ServicesSync = { took: noDurations(SYNC_BUCKETS), services: 0, slices: 0 }
  #forgotten = 0

  /** Notes that a change came. */
  queued(): void {
    this.#sync = { ...this.#sync, queuedAt: Date.now() }
  }

  /**
   * Notes a step that took these changes of objects to the kernel in so many seconds. `triggered` says when changes of
   * slices among them happened, in milliseconds since 1970.
   */
  synced(changed: ChangedKeys, seconds: number, triggered: Iterable<number>): void {
    for (const at of triggered)
      this.#programming = withDuration(this.#programming, Math.max(0, (Date.now() - at) / 1000), PROGRAMMING_BUCKETS)
    const { took, services, slices, ...times } = this.#sync
    this.#sync = {
      ...times,
      // A step without changes looked only whether the kernel still has everything.
      took: changed.size === 0 ? took : withDuration(took, seconds, SYNC_BUCKETS),
      doneAt: Date.now(),
      services: services + (changed.get('services')?.size ?? 0),
      slices: slices + (changed.get('slices')?.size ?? 0),
    }
  }

  /** Notes that so many UDP connections were forgotten. */
  forgot(count: number): void {
    this.#forgotten += count
  }

  /** The status of Services with these numbers of objects. */
  status(counts: Pick<ServicesStatus, 'services' | 'frontends' | 'endpoints'>): ServicesStatus {
    return { ...counts, programming: this.#programming, forgotten: this.#forgotten, sync: this.#sync }
  }
}

function range(first: number, last: number, step: number): number[] {
  return Array.from({ length: (last - first) / step + 1 }, (_, i) => first + i * step)
}
