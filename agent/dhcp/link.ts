import type { LinkFacts } from '../../lib/os/links.ts'
import { inside } from '../../lib/os/netns.ts'
import { ethernetIn, setLink } from '../../lib/os/packets.ts'
import { writeSysctl } from '../../lib/os/sysctls.ts'
import type { Wants } from '../../lib/pools/dhcp.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { Owner } from '../../lib/text/owner.ts'
import type { NetnsPath } from '../../lib/text/values.ts'

/**
 * Sets a link up, as the reference DHCP daemon does. Returns the link's index and MAC address.
 * Throws CniError 3 when the namespace or the link does not exist.
 */
export function raise(
  netns: NetnsPath,
  { owner: { ifname }, wants }: { readonly owner: Owner; readonly wants: Wants },
): Pick<LinkFacts, 'index' | 'mac'> {
  const facts = ethernetIn(netns, ifname)
  if (!facts)
    throw new CniError(
      CODE.unknownContainer,
      `Cannot find the Ethernet link ${ifname} in ${netns}`,
      'the interface plugin has to make it before it asks dhcp: bridge and macvlan do',
    )
  // A DHCPv6 client needs the link-local address.
  // With duplicate address detection (DAD) the kernel delays this address by one to two seconds.
  if (!facts.isUp && wants.families.includes(6))
    for (const [key, value] of [
      ['disable_ipv6', '0'],
      ['accept_dad', '0'],
    ])
      inside(netns, () => writeSysctl(`ipv6/conf/${ifname}/${key}`, value as string))
  if (!facts.isUp) setLink(netns, ifname, true)
  return { index: facts.index, mac: facts.mac }
}
