import { delays, pause } from '../../scheduler/pause.ts'
import { StoreError } from '../store.ts'
import type { Connection } from './connection.ts'
import type { WatchResponse } from './generated/etcd_pb.js'
import type { Keys } from './keys.ts'
import type { View } from './view.ts'

// Less than five seconds after etcd is back, it is noticed.
const [LEAST_MS, MOST_MS] = [100, 4000]

/** What is watched, and by which connection. */
export interface Followed {
  readonly etcd: Connection
  readonly keys: Keys
  readonly view: View
}

/** Keeps a view up to date until the signal: reads it once, then watches from there on, on every member in turn. What is known stays while etcd is away. */
export async function follow({ etcd, keys, view }: Followed, signal: AbortSignal): Promise<void> {
  let waits = delays(LEAST_MS, MOST_MS)
  while (!signal.aborted) {
    try {
      if (view.revision === 0n) await view.read(etcd, signal)
      for await (const answer of etcd.watch({ ...keys.all, startRevision: view.revision + 1n }, signal)) {
        if (isLost(answer, view)) {
          view.doubt()
          break
        }
        view.isLive = true
        waits = delays(LEAST_MS, MOST_MS)
        view.apply(answer.events, reached(answer))
      }
    } catch (cause) {
      // The connection tells what was wrong in its state.
      if (!(cause instanceof StoreError)) throw cause
    }
    view.isLive = false
    await pause(waits.next().value, signal)
  }
}

// Compacted: what was changed meanwhile is not told any more. A revision before ours: an etcd that was emptied, or a member that is behind.
function isLost({ compactRevision, created, header }: WatchResponse, view: View): boolean {
  return compactRevision > 0n || (created && (header?.revision ?? 0n) < view.revision)
}

// The header has the revision of etcd as it is now: of all that comes before it, events may still be under way, unless it comes to say that there are none.
function reached({ events, created, header }: WatchResponse): bigint {
  return events.at(-1)?.kv?.modRevision ?? (created ? 0n : (header?.revision ?? 0n))
}
