import type { ChangedKeys } from '../cluster/changes.ts'
import { noDurations, withDuration } from '../scheduler/durations.ts'
import { PROGRAMMING_BUCKETS, type ServicesStatus, type ServicesSync, SYNC_BUCKETS } from './status.ts'

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
