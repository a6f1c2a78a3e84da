import { makeNotification } from '../scheduler/pause.ts'
import type { Snapshot } from './store.ts'

/**
 * The snapshots that a store yields, one after each change that `follow` reports. The generator makes a snapshot when
 * the consumer asks for the next value. Changes in between are merged into one snapshot. The generator ends with the
 * signal, or when the consumer stops. It then aborts `follow` and waits for its end.
 */
export async function* snapshots(
  look: () => Snapshot,
  follow: (changed: () => void, ended: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): AsyncGenerator<Snapshot> {
  const [leaving, changed] = [new AbortController(), makeNotification()]
  const ended = AbortSignal.any([signal, leaving.signal])
  const following = follow(changed.notify, ended)
  // `follow` rejects only because of a defect, not because of an outage. The abort ends the wait below.
  following.catch(() => leaving.abort())
  try {
    for (await changed.notified(ended); !ended.aborted; await changed.notified(ended)) yield look()
  } finally {
    leaving.abort()
    await following
  }
}
