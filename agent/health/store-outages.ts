import { pause } from '../scheduler/pause.ts'
import type { SubnetStore } from '../store/store.ts'
import { span } from './phrases.ts'

const LOOK_MS = 1000

/** Says once when a store has been away for a second, and once when it is back, until the signal; each time `changed` is called. */
export async function watchStore(store: SubnetStore, signal: AbortSignal, changed: () => void, log: (text: string) => void): Promise<void> {
  let [since, told]: [number | undefined, boolean] = [undefined, false]
  for (; !signal.aborted; await pause(LOOK_MS, signal)) {
    const { connected, error } = store.state()
    const isAway = !connected && error !== undefined
    if (isAway && since !== undefined && !told) {
      told = true
      log(`agent: the store is away, going on with what is known: ${error}`)
      changed()
    }
    if (!isAway && told && since !== undefined) {
      told = false
      log(`agent: the store is back after ${span(performance.now() - since)}`)
      changed()
    }
    since = isAway ? (since ?? performance.now()) : undefined
  }
}
