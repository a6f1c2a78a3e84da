import { log } from '../../lib/os/log.ts'
import { BRIDGE_FILTERS, maybeSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import type { Part } from '../scheduler/part.ts'
import { every } from '../scheduler/pause.ts'
import type { Repairs } from './repairs.ts'

/**
 * How often the settings are looked at, in milliseconds. The kernel tells nobody of their changes. A look reads two
 * small files.
 */
const LOOK_MS = 2000

/**
 * Keeps the settings of br_netfilter by which frames between two ports of a bridge meet the rules of policy and of
 * Services, the rules of `part`. `isNeeded` says whether such frames exist. Ends with the signal.
 */
export function keepBridgedFrames(part: Part, isNeeded: () => boolean, repairs: Repairs, signal: AbortSignal): void {
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
    if (isKept && names.length > 0) {
      const repaired = names.map((name) => ({ key: name, title: name }))
      repairs.note(part, 'sysctl', repaired)
      // A part that waits for other settings is asked again at once.
      part.queue.add('sysctl')
    } else if (names.length > 0)
      log(`agent: set ${names.join(' and ')} to 1: frames of a bridge meet the rules of pods`)
    isKept ||= maybeSysctl(BRIDGE_FILTERS[0]) === '1'
  }
  look()
  every(LOOK_MS, look, signal)
}
