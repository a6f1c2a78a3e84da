import { log } from '../../lib/os/log.ts'
import { maybeSysctl, writeSysctl } from '../../lib/os/sysctls.ts'

/**
 * How often the settings are looked at, in milliseconds. The kernel tells nobody of their changes. A look reads two
 * small files.
 */
const LOOK_MS = 2000
const SETTINGS = ['iptables', 'ip6tables'].map((tables) => `bridge/bridge-nf-call-${tables}`)

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
    const wrong = SETTINGS.filter((name) => !['1', undefined].includes(maybeSysctl(name)))
    try {
      for (const name of wrong) writeSysctl(name, '1')
    } catch {
      // The part that needs the setting reports what it finds (bridges).
      return
    }
    const names = wrong.map((name) => `net.${name.replaceAll('/', '.')}`)
    if (isKept && names.length > 0) repaired(names)
    else if (names.length > 0) log(`agent: set ${names.join(' and ')} to 1: frames of a bridge meet the rules of pods`)
    isKept ||= maybeSysctl(SETTINGS[0] as string) === '1'
  }
  const timer = setInterval(look, LOOK_MS)
  look()
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
}
