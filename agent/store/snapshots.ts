import { bell } from '../scheduler/pause.ts'
import type { Snapshot } from './store.ts'

/** The snapshots that a store yields: one whenever `follow` has said that something changed, made when it is taken, so that what comes while nobody takes is folded into one. Ends with the signal, or when nobody wants more; then `follow` is told to end, and waited for. */
export async function* snapshots(look: () => Snapshot, follow: (changed: () => void, ended: AbortSignal) => Promise<void>, signal: AbortSignal): AsyncGenerator<Snapshot> {
  const [leaving, news] = [new AbortController(), bell()]
  const ended = AbortSignal.any([signal, leaving.signal])
  const following = follow(news.ring, ended)
  // A defect, not an outage: it must end what waits here.
  following.catch(() => leaving.abort())
  try {
    for (await news.heard(ended); !ended.aborted; await news.heard(ended)) yield look()
  } finally {
    leaving.abort()
    await following
  }
}
