import { restore } from '../../lib/nft/elements.ts'
import { run } from '../kernel/run.ts'
import type { Failures } from '../scheduler/failures.ts'

// What takes a table away takes several things, one after the other.
const PAUSE_MS = 100

/** Puts the plugins' nft table back with the elements of all pods, when somebody took its rules away. */
export interface PluginRules {
  /** Something happened to the table. Looks soon, once for all that comes meanwhile. */
  doubt(): void
  /** Looks at every element of every pod now. */
  resync(): void
}

/** Keeps them until the signal. `repaired` is called when they had to be loaded again. */
export function keepPluginRules({ failures, repaired }: { readonly failures: Failures; repaired(): void }, signal: AbortSignal): PluginRules {
  let timer: ReturnType<typeof setTimeout> | undefined
  let underWay = Promise.resolve()
  const look = (isThorough: boolean) => {
    underWay = underWay.then(async () => {
      if (signal.aborted) return
      try {
        if (await restore(run, isThorough)) repaired()
        failures.report('rules of plugins', [])
      } catch (cause) {
        failures.report('rules of plugins', [{ scope: 'node', text: `Cannot load the nft rules of plugins: ${(cause as Error).message}` }])
      }
    })
  }
  signal.addEventListener('abort', () => clearTimeout(timer), { once: true })
  return {
    doubt() {
      timer ??= setTimeout(() => {
        timer = undefined
        look(false)
      }, PAUSE_MS)
    },
    resync: () => look(true),
  }
}
