import type { Ipip } from '../../lib/state/kinds/link-shape.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import type { IfName } from '../../lib/text/values.ts'
import { markOf } from '../kernel/marks.ts'
import type { Lease } from '../lease/lease.ts'
import type { Entrance, Facts } from './backend.ts'
import type { Uplink } from './uplink.ts'

/**
 * The device of a backend that carries IPv4 inside of IPv4, and its address: the first one of the node's subnet. `mtu`
 * is in bytes. Empty for a node without IPv4.
 */
export function tunnelDevice(
  { name, mtu, port }: { readonly name: IfName; readonly mtu: number } & Pick<Ipip, 'port'>,
  { subnets }: Lease,
  { tunnel }: Uplink,
  { instance }: Facts,
): readonly Resource[] {
  const [subnet, local] = [subnets.v4, tunnel.v4]
  if (subnet === undefined || local === undefined) return []
  const ipip = { local, ...(port !== undefined && { port }) }
  return [
    { kind: 'link', ns: 'host', name, type: 'ipip', mtu, alias: markOf(instance), ipip, up: true },
    { kind: 'addr', ns: 'host', dev: name, cidr: `${beginOf(subnet)}/32` as Cidr },
  ]
}

/** The packets that such a device takes: protocol 4 at its local address. Empty for a node without IPv4. */
export function entranceOf({ tunnel: { v4 } }: Uplink): readonly Entrance[] {
  return v4 === undefined ? [] : [{ family: 'v4', match: 'ip protocol 4', at: v4 }]
}

/** The first address of a subnet. The device of a node has it before the node's first pod, as flannel's has. */
export function beginOf(subnet: Cidr): Ip {
  return subnet.slice(0, subnet.indexOf('/')) as Ip
}

/** Refuses a network with IPv6, for a backend that carries IPv4 alone. Throws ValueError. */
export function refuseSix(type: string, { tunnel }: Uplink): void {
  if (tunnel.v4 !== undefined && tunnel.v6 === undefined) return
  const want = 'want "EnableIPv6": false, or backend vxlan'
  throw new ValueError(`Cannot use backend ${type} with IPv6: it carries IPv4 alone; ${want}`)
}

/** Reads the MTU of the network between the nodes, in bytes. 0 stands for the uplink's. Throws ValueError. */
export function underlayMtu(value: unknown): number {
  const isMtu = typeof value === 'number' && Number.isInteger(value) && value >= 576 && value <= 65535
  if (value === 0 || isMtu) return value
  throw new ValueError(`${shown(value)}: want a whole number, 576 to 65535, or 0 for the uplink's`)
}
