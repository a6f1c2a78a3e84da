import { attachmentsWith, isThere, partsOf } from '../journal/journal.ts'
import { addressesNow } from '../os/link-addresses.ts'
import { inside } from '../os/netns.ts'
import { type Ip, split } from '../text/ip.ts'
import { fileName, type Owner } from '../text/owner.ts'
import type { NetnsPath } from '../text/values.ts'

/**
 * Whether a pod of the same network, other than this attachment, has an address: its entry in the journal names it, and
 * a link of its namespace has it. A pool asks this, because its reservations may be lost: people delete them to make
 * room. When the kernel does not answer, the pod has the address. A user who may not read the journal learns nothing.
 */
export function isInUse(ip: Ip, but: Owner): boolean {
  try {
    return attachmentsWith(ip)
      .filter(({ owner }) => owner.network === but.network && fileName(owner) !== fileName(but))
      .flatMap(partsOf)
      .some(([, part]) => isThere(part) && inside(part.netns as NetnsPath, () => hasAddress(ip)))
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code !== 'EACCES'
  }
}

function hasAddress(ip: Ip): boolean {
  return addressesNow().some(({ cidr }) => split(cidr).ip === ip)
}
