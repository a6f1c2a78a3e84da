import { follow as followSource, type Source } from '../../scheduler/follow.ts'
import type { Connection } from './connection.ts'
import type { WatchResponse } from './generated/etcd_pb.js'
import type { Keys } from './keys.ts'
import type { View } from './view.ts'

// The agent notices in less than five seconds that etcd is back. The pings of HTTP/2 detect a dead connection.
const PATIENCE = { leastMs: 100, mostMs: 4000 }

/** The connection, the keys and the view of a watch. */
export interface Followed {
  readonly etcd: Connection
  readonly keys: Keys
  readonly view: View
}

/**
 * Keeps a view up to date until the signal, and tries every member in turn. The known data stays while etcd is away.
 */
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
        view.relist()
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

// After a compaction, etcd no longer has the changes since the known revision. A revision before the known revision
// means that etcd was emptied or the member is behind.
function isLost({ compactRevision, created, header }: WatchResponse, view: View): boolean {
  return compactRevision > 0n || (created && (header?.revision ?? 0n) < view.revision)
}

// The header has the current revision of etcd. Events of earlier revisions may still follow, so the last event gives
// the revision. An answer without events confirms the revision of the header. The one that opens the watch does not.
function reached({ events, created, header }: WatchResponse): bigint {
  return events.at(-1)?.kv?.modRevision ?? (created ? 0n : (header?.revision ?? 0n))
}
