import { log } from '../../lib/os/log.ts'
import { BRIDGE_FILTERS, maybeSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'

/**
 * How often the settings are looked at, in milliseconds. The kernel tells nobody of their changes. A look reads two
 * small files.
 */
const LOOK_MS = 2000

/**
 * Keeps the settings of br_netfilter by which frames between two ports of a bridge meet the rules of policy and of
 * Services. `isNeeded` says whether such frames exist. `repaired` gets the names of settings that another program has
 * changed. Ends with the signal.
 */
export function keepBridgedFrames(
  isNeeded: () => boolean,
  repaired: (names: readonly string[]) => void,
  signal: AbortSignal,
): void {
  let isKept = false
  const look = () => {
    if (!isNeeded()) return
    const wrong = BRIDGE_FILTERS.filter((name) => !['1', undefined].includes(maybeSysctl(name)))
    try {
      for (const name of wrong) writeSysctl(name, '1')
    } catch {
      // The part that needs the setting reports what it finds (bridges).
      return
    }
    const names = wrong.map(sysctlName)
    if (isKept && names.length > 0) repaired(names)
    else if (names.length > 0) log(`agent: set ${names.join(' and ')} to 1: frames of a bridge meet the rules of pods`)
    isKept ||= maybeSysctl(BRIDGE_FILTERS[0]) === '1'
  }
  const timer = setInterval(look, LOOK_MS)
  look()
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
}
