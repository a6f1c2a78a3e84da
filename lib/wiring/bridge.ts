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

/** What a network wants of a bridge that others may use, too. */
interface Wanted {
  readonly bridge: Link
  /** The link that holds the gateways, and these. */
  readonly holder: IfName
  readonly gateways: readonly Addr[]
  readonly isForced: boolean
  /** The port of the pod, when it is to be locked to the pod's address. */
  readonly locked: IfName | undefined
  /** The result, once it is known what the bridge is like. */
  result(mac: Mac, mtu: number): Result
}

/** The `settle` of what stands on a bridge. Throws CniError 7 for a link of its name that is none, and for an address in the way of its gateways unless `isForced`. */
export function settling({ bridge, holder, gateways, isForced, locked, result }: Wanted, now: Now): () => Settled {
  // While tools in the pod change links, who asks the kernel for one waits for them.
  const seen = now.seen?.(bridge.name, 'host')
  return () => {
    if (!seen) throw new CniError(CODE.internal, `Cannot see bridge ${bridge.name} after it was made`, 'another program removed it; try again')
    mustBeBridge(bridge.name, seen)
    if (locked !== undefined) mustBeLocked(locked, now)
    const { put, drop } = gatewayPlan(holder === bridge.name ? seen : now.seen?.(holder, 'host'), gateways, isForced, now)
    return { result: result(seen.mac, seen.mtu), plan: { put: [...raised(seen, bridge), ...put], drop } }
  }
}

function mustBeBridge(name: IfName, { kind }: SeenLink): void {
  if (kind !== 'bridge') throw new CniError(CODE.config, `Cannot use "${name}" as a bridge: "${name}" already exists but is not a bridge`, `it is ${kind ? `of type ${kind}` : 'hardware, or lo'}; set "bridge" to another name`)
}

// Kernels before 5.18 take the flag from a newer ip and forget it.
function mustBeLocked(port: IfName, now: Now): void {
  if (now.seen?.(port, 'host')?.locked === false) throw new CniError(CODE.unsupportedField, 'Cannot serve "macspoofchk": this kernel does not lock ports of a bridge', 'want Linux 5.18 or newer, or leave "macspoofchk" out')
}

function raised({ isUp, promisc }: SeenLink, { shared: _, ...bridge }: Link): Link[] {
  return isUp && (!bridge.promisc || promisc) ? [] : [bridge]
}

// The gateway addresses that are missing, and those in their way: any other IPv4 address, an IPv6 address of an overlapping subnet (upstream's ensureAddr).
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
      if (!isForced) throw new CniError(CODE.config, `"${dev}" already has an IP address different from ${cidr}`, `it has ${other}; set "forceAddress" to replace it, or another "bridge"`)
      drop.push({ kind: 'addr', ns, dev, cidr: other })
    }
  }
  return { put: missing, drop }
}

/** Throws CniError 50 when no bridge of this name can be had, 51 when there is one and the node does not forward what its pods send to the gateways on the link `gateway`. */
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
  if (shut.length > 0) throw new CniError(CODE.limited, `Pods of bridge ${name} reach only each other: the node does not forward`, `sysctl ${shut.map((one) => `net/${one}`).join(', ')} is 0; the next ADD sets it to 1`)
}
