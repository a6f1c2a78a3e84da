import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Resource } from '../state/resource.ts'
import { type Ip, split } from '../text/ip.ts'

/**
 * Tells the neighbours of a pod's link at once that the pod has these addresses. Otherwise those that know the MAC
 * address of an address's former owner would send to it for half a minute. The kernel itself announces an address when
 * a link comes up (arp_notify, ndisc_notify). That is enough for links on a master, such as a macvlan. It is too early
 * for a port of a bridge, which does not forward yet, and for a device that gets its addresses while it is up. Comes
 * after `untilRunning`. A failure is only logged.
 */
export function announceAddresses(own: readonly Resource[], run: Run): void {
  const isBridged = own.some((one) => one.kind === 'link' && one.ns === 'host' && one.port !== undefined)
  for (const link of own) {
    if (link.kind !== 'link' || link.ns === 'host' || !link.up) continue
    if (link.type === 'lent') tell(link, own, (addresses) => run.announce?.(link.name, addresses, link.ns))
    // A driver could refuse to set the MAC address of hardware that is up. A veth pair does not.
    else if (link.type === 'peer' && isBridged) tell(link, own, () => run.announceByKernel?.(link.name, link.ns))
  }
}

/** Tells the pods of a bridge which MAC address its gateway addresses have now. */
export function announceGateways(put: readonly Resource[], run: Run): void {
  for (const name of new Set(put.flatMap((one) => (one.kind === 'addr' && one.ns === 'host' ? [one.dev] : []))))
    tell({ name, ns: 'host' }, put, (addresses) => run.announce?.(name, addresses, 'host'))
}

function tell(
  { name, ns }: Pick<Link, 'name' | 'ns'>,
  all: readonly Resource[],
  announce: (addresses: readonly Ip[]) => void,
): void {
  const addresses = all.flatMap((one) =>
    one.kind === 'addr' && one.ns === ns && one.dev === name ? [split(one.cidr).ip] : [],
  )
  try {
    if (addresses.length > 0) announce(addresses)
  } catch (cause) {
    log(`plumb: Cannot announce ${addresses.join(', ')} on ${name}: ${(cause as Error).message}`)
  }
}
