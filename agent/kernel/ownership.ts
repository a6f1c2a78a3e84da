import type { Resource } from '../../lib/state/resource.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { bitsOf, type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import type { IfName, NetworkName } from '../../lib/text/values.ts'
import { markOf, PROTO } from './marks.ts'
import { isOwnId } from './nexthops.ts'

/** The kernel objects that belong to one agent. */
export interface Scope {
  readonly instance: NetworkName
  /**
   * The backend's own devices. Objects on them inside the networks belong to the agent, also those that flannel made.
   */
  readonly links: readonly IfName[]
  /** The networks of the pods, and the networks of an earlier configuration whose routes must go. */
  readonly networks: readonly Cidr[]
  /**
   * Replaces another program's route to a destination of the agent, such as a host-gw route of flannel. Without it, the
   * other route stays and is reported.
   */
  readonly takeOver?: true
}

/** Makes a test for a scope: whether a found resource belongs to the agent. */
export function ownership({ instance, links, networks }: Scope): (found: Resource) => boolean {
  const isInside = within(networks)
  const isOurs = (dev: IfName) => links.includes(dev)
  return (found) => {
    switch (found.kind) {
      case 'link':
        return isOurs(found.name) || found.alias === markOf(instance)
      case 'addr':
        return isOurs(found.dev) && isInside(found.cidr)
      case 'neigh':
        return isOurs(found.dev) && (found.proto === PROTO || isInside(found.ip))
      case 'wgdevice':
      case 'wgpeer':
        return isOurs(found.dev)
      case 'tunnel':
        return isOurs(found.dev) && isNodes(found.mac)
      case 'nexthop':
        return found.proto === PROTO && (isOurs(found.dev) || isOwnId(instance, found))
      case 'route':
        // flannel's routes have no protocol number (ip-route(8): boot). Routes of the kernel have one, and so do routes
        // that people mark.
        if (isInside(found.dst)) return found.proto === PROTO || (found.proto === undefined && isOurs(found.dev))
        if (found.proto !== PROTO || found.nhid === undefined || found.via[0] === undefined) return false
        return isOwnId(instance, { id: found.nhid, via: found.via[0], dev: found.dev })
      default:
        return false
    }
  }
}

/** Whether an address, or the first address of a network, lies in one of these networks. */
export function within(networks: readonly Cidr[]): (value: Ip | Cidr) => boolean {
  const four = networks.filter((one) => !isSix(one)).map(ends)
  const six = networks.filter(isSix).map((one) => split(one))
  return (value) => {
    if (!isSix(value)) {
      const bits = numberOf(value)
      return four.some(({ first, last }) => bits >= first && bits <= last)
    }
    const { bits } = bitsOf(value)
    return six.some(({ first, last }) => bits >= first && bits <= last)
  }
}

// The all-zero MAC (default destination) and group MACs are another program's choice. They never name a node.
function isNodes(mac: string): boolean {
  return mac !== '00:00:00:00:00:00' && (Number.parseInt(mac.slice(1, 2), 16) & 1) === 0
}

function ends(cidr: Cidr): { first: number; last: number } {
  const { first, last } = split(cidr)
  return { first: Number(first), last: Number(last) }
}

// Parses tens of thousands of addresses at once. The kernel's own texts need no strict checks of lib/text/ip.ts.
function numberOf(text: string): number {
  let [bits, part] = [0, 0]
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === 0x2f) break
    if (code === 0x2e) [bits, part] = [bits * 256 + part, 0]
    else part = part * 10 + code - 0x30
  }
  return bits * 256 + part
}
