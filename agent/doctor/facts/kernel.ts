import { uncountedNeighbours as uncountedNow } from '../../../lib/os/neighbours.ts'
import { maybeSysctl } from '../../../lib/os/sysctls.ts'
import { type Fact, readNow } from './facts.ts'

/** Gives the value of a sysctl below /proc/sys/net, such as `ipv4/ip_forward`. Undefined when the kernel has none. */
export const sysctl: Fact<(name: string) => string | undefined> = {
  read: () => maybeSysctl,
  inAgent: () => maybeSysctl,
}

/** Gives the number of neighbours that do not count for the limit of the kernel's table. Throws NotRead. */
export const uncountedNeighbours: Fact<(family: 4 | 6) => number> = {
  read: () => uncounted,
  inAgent: () => uncounted,
}

/** The time, in milliseconds since 1970. */
export const now: Fact<number> = {
  async read({ others }) {
    await others
    return Date.now()
  },
  isLast: true,
  inAgent: () => Date.now(),
}

function uncounted(family: 4 | 6): number {
  return readNow(() => uncountedNow(family))
}
