import type { Now } from '../cni/plugin.ts'
import type { Result, Settled } from '../cni/result.ts'
import { RT_SCOPE_LINK } from '../os/link-addresses.ts'
import type { SeenLink } from '../os/links.ts'
import type { Addr } from '../state/kinds/addr.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Plan } from '../state/resource.ts'
import { contains, isSix } from '../text/cidr.ts'
import { CniError, CODE } from '../text/errors.ts'
import { split } from '../text/ip.ts'
import type { IfName, Mac } from '../text/values.ts'
import { notForwarding } from './forwarding.ts'

/** The settings that a network needs on a bridge. Other networks may share the bridge. */
interface Wanted {
  readonly bridge: Link
  /** The link with the gateway addresses, and these addresses. */
  readonly holder: IfName
  readonly gateways: readonly Addr[]
  readonly isForced: boolean
  /** The pod's port, when it must accept only the pod's MAC address. */
  readonly locked: IfName | undefined
  /** The result of ADD. It is complete when the bridge's MAC and MTU are known. */
  result(mac: Mac, mtu: number): Result
}

/**
 * Makes the `settle` step of a bridge. It throws CniError 7 when a link of the bridge's name is not a bridge. It also
 * throws CniError 7 when another address blocks the gateways, unless `isForced`.
 */
export function settling({ bridge, holder, gateways, isForced, locked, result }: Wanted, now: Now): Settled {
  const seen = now.seen?.(bridge.name, 'host')
  if (!seen)
    throw new CniError(
      CODE.internal,
      `Cannot see bridge ${bridge.name} after it was made`,
      'another program removed it; try again',
    )
  mustBeBridge(bridge.name, seen)
  if (locked !== undefined) mustBeLocked(locked, now)
  const { put, drop } = gatewayPlan(holder === bridge.name ? seen : now.seen?.(holder, 'host'), gateways, isForced, now)
  return { result: result(seen.mac, seen.mtu), plan: { put: [...raised(seen, bridge), ...put], drop } }
}

function mustBeBridge(name: IfName, { kind }: SeenLink): void {
  if (kind !== 'bridge')
    throw new CniError(
      CODE.config,
      `Cannot use "${name}" as a bridge: "${name}" already exists but is not a bridge`,
      `it is ${kind ? `of type ${kind}` : 'hardware, or lo'}; set "bridge" to another name`,
    )
}

// A kernel before 5.18 accepts the flag from a newer `ip` and ignores it.
function mustBeLocked(port: IfName, now: Now): void {
  if (now.seen?.(port, 'host')?.locked === false)
    throw new CniError(
      CODE.unsupportedField,
      'Cannot serve "macspoofchk": this kernel does not lock ports of a bridge',
      'want Linux 5.18 or newer, or leave "macspoofchk" out',
    )
}

function raised({ isUp, promisc }: SeenLink, { shared: _, ...bridge }: Link): Link[] {
  return isUp && (!bridge.promisc || promisc) ? [] : [bridge]
}

// Gives the missing gateway addresses and the addresses that conflict with them. Any other IPv4 address conflicts, and
// an IPv6 address of an overlapping subnet (upstream's ensureAddr).
function gatewayPlan(holder: SeenLink | undefined, gateways: readonly Addr[], isForced: boolean, now: Now): Plan {
  const asked = ([4, 6] as const).filter((family) => gateways.some(({ cidr }) => isSix(cidr) === (family === 6)))
  const held = asked.flatMap((family) => (holder && now.held?.(holder.index, family)) ?? []).map(({ cidr }) => cidr)
  const wanted = gateways.map(({ cidr }) => cidr)
  const missing = gateways.filter(({ cidr }) => !held.includes(cidr))
  const drop: Addr[] = []
  for (const { cidr, ns, dev } of missing) {
    for (const other of held) {
      if (wanted.includes(other) || isSix(other) !== isSix(cidr)) continue
      if (isSix(other) && !contains(other, split(cidr).ip) && !contains(cidr, split(other).ip)) continue
      if (!isForced)
        throw new CniError(
          CODE.config,
          `"${dev}" already has an IP address different from ${cidr}`,
          `it has ${other}; set "forceAddress" to replace it, or another "bridge"`,
        )
      drop.push({ kind: 'addr', ns, dev, cidr: other })
    }
  }
  return { put: missing, drop }
}

/**
 * Throws CniError 50 when a link of this name is not a bridge. Throws CniError 51 when the bridge exists and the node
 * does not forward packets that pods send to the gateways on the link `gateway`.
 */
export function bridgeReady(name: IfName, gateway: IfName | undefined, run: Now): void {
  const seen = run.seen?.(name, 'host')
  if (!seen) return
  try {
    mustBeBridge(name, seen)
  } catch (cause) {
    throw new CniError(CODE.notReady, (cause as CniError).message, (cause as CniError).details, { cause })
  }
  const holder = gateway && run.seen?.(gateway, 'host')
  const held = (holder && run.held?.(holder.index)) || []
  const shut = notForwarding(held.flatMap(({ cidr, scope }) => (scope === RT_SCOPE_LINK ? [] : cidr)))
  if (shut.length > 0)
    throw new CniError(
      CODE.limited,
      `Pods of bridge ${name} reach only each other: the node does not forward`,
      `sysctl ${shut.map((one) => `net/${one}`).join(', ')} is 0; the next ADD sets it to 1`,
    )
}
