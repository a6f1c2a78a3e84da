import { log } from '../../lib/os/log.ts'
import { maybeSysctl, sysctlName, writeSysctl } from '../../lib/os/sysctls.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import type { Fought } from '../kernel/fights.ts'
import type { Both } from '../lease/lease.ts'

const SETTINGS = { v4: 'ipv4/ip_forward', v6: 'ipv6/conf/all/forwarding' } as const

/**
 * Keeps the settings by which the node forwards what pods send. The doctor names one that stays off because nobody may
 * set it.
 */
export class Forwarding {
  /** The families that the node forwarded at some look. */
  readonly #seen = new Set<'v4' | 'v6'>()

  /**
   * Sets what is off, for the families of these subnets and for IPv4 on these links. Gives the settings that another
   * program had switched off.
   */
  keep(subnets: Both<Cidr>, links: Iterable<string>): Fought[] {
    const families = (['v4', 'v6'] as const).filter((family) => subnets[family])
    const repaired = families.flatMap((family) => this.#keepFamily(family))
    return subnets.v4 ? [...repaired, ...[...new Set(links)].flatMap(keepLink)] : repaired
  }

  #keepFamily(family: 'v4' | 'v6'): Fought[] {
    const [name, value] = [SETTINGS[family], maybeSysctl(SETTINGS[family])]
    if (value === '1') this.#seen.add(family)
    // Forwarding of IPv6 changes how the node takes router advertisements. It begins with a pod (plugin bridge).
    if (value !== '0' || (family === 'v6' && !this.#seen.has('v6'))) return []
    if (!isSet(name)) return []
    const title = sysctlName(name)
    const isRepair = this.#seen.has(family)
    if (!isRepair) log(`agent: set ${title} to 1: the node forwards what pods send`)
    this.#seen.add(family)
    return isRepair ? [{ key: title, title }] : []
  }
}

// Another program may have switched off a link alone. A new link of a hardened node begins like this.
function keepLink(link: string): Fought[] {
  const name = `ipv4/conf/${link}/forwarding`
  if (maybeSysctl(name) !== '0' || !isSet(name)) return []
  const title = `net.ipv4.conf.${link.replaceAll('.', '/')}.forwarding`
  return [{ key: title, title }]
}

// False when the kernel refuses it.
function isSet(name: string): boolean {
  try {
    writeSysctl(name, '1')
    return true
  } catch {
    return false
  }
}
