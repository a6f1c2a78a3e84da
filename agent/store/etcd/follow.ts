import { follow as followSource, type Source } from '../../scheduler/follow.ts'
import type { Connection } from './connection.ts'
import type { WatchResponse } from './generated/etcd_pb.js'
import type { Keys } from './keys.ts'
import type { View } from './view.ts'

// Less than five seconds after etcd is back, it is noticed. A connection that is dead is noticed by HTTP/2's pings.
const PATIENCE = { leastMs: 100, mostMs: 4000 }

/** What is watched, and by which connection. */
export interface Followed {
  readonly etcd: Connection
  readonly keys: Keys
  readonly view: View
}

/** Keeps a view up to date until the signal, on every member in turn. What is known stays while etcd is away. */
export function follow(followed: Followed, signal: AbortSignal): Promise<void> {
  return followSource(sourceOf(followed), PATIENCE, signal)
}

function sourceOf({ etcd, keys, view }: Followed): Source<bigint, WatchResponse> {
  return {
    known: () => (view.revision === 0n ? undefined : view.revision),
    list: (signal) => view.read(etcd, signal),
    watch: (after, signal) => etcd.watch({ ...keys.all, startRevision: after + 1n }, signal),
    apply(answer) {
      if (isLost(answer, view)) {
        view.doubt()
        return false
      }
      view.isLive = true
      view.apply(answer.events, reached(answer))
      return true
    },
    live(isLive) {
      view.isLive = isLive
    },
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
