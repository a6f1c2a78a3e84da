import { pause } from '../scheduler/pause.ts'
import type { SubnetStore } from '../store/store.ts'
import { span } from './phrases.ts'

const LOOK_MS = 1000

/**
 * Watches the store until the signal. Logs once when the store has not answered for a second, and once when it answers
 * again. Calls `changed` after each log line.
 */
export async function watchStore(
  store: SubnetStore,
  signal: AbortSignal,
  changed: () => void,
  log: (text: string) => void,
  warn = log,
): Promise<void> {
  let [since, isReported]: [number | undefined, boolean] = [undefined, false]
  for (; !signal.aborted; await pause(LOOK_MS, signal)) {
    const { connected, error } = store.state()
    const isAway = !connected && error !== undefined
    if (isAway && since !== undefined && !isReported) {
      isReported = true
      warn(`agent: the store is away, going on with what is known: ${error}`)
      changed()
    }
    if (!isAway && isReported && since !== undefined) {
      isReported = false
      log(`agent: the store is back after ${span(performance.now() - since)}`)
      changed()
    }
    since = isAway ? (since ?? performance.now()) : undefined
  }
}
