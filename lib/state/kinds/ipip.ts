import type { Ip } from '../../text/ip.ts'
import type { Line } from '../handler.ts'
import type { Ipip, IpipRow, Link } from './link-shape.ts'

/**
 * The lines that make an ipip device, like flannel does: the outer packets have the inner packets' TTL and may be
 * fragmented. Throws TypeError without attributes.
 */
export function createIpip({ name, mtu, alias, up, ipip }: Link): Line[] {
  if (!ipip) throw new TypeError(`the ipip device ${name} has no attributes`)
  const { local, port } = ipip
  const set = `${mtu ? ` mtu ${mtu}` : ''}${up ? ' up' : ''}`
  const encap = port === undefined ? '' : ` encap fou encap-sport ${port} encap-dport ${port}`
  // A program that reads the UDP port, such as flanneld, cannot use what the kernel has not cut into packets. A link
  // between namespaces or virtual machines cuts nothing on the way.
  const segments = port === undefined ? '' : ' gso_max_segs 1'
  const create = `link add name ${name}${set}${segments} type ipip local ${local} remote any ttl inherit nopmtudisc${encap}`
  return [{ text: create }, ...(alias ? [{ text: `link set dev ${name} alias ${alias}` }] : [])]
}

/**
 * The line that closes the port of a device that is gone. Only the device tells which port it was. The kernel answers
 * "Invalid argument" when the port is not open.
 */
export function closePort({ ipip }: Link): Line[] {
  return ipip?.port === undefined ? [] : [{ text: `fou del port ${ipip.port}`, unless: /Invalid argument/ }]
}

/** Whether two ipip devices agree in all attributes. The kernel changes none of them in place, for plumb. */
export function isSameIpip(one: Ipip, other: Ipip): boolean {
  return one.local === other.local && one.port === other.port
}

/** The attributes of an ipip device. Undefined for other links and for devices with attributes that plumb never sets. */
export function ipipOf(info: { readonly info_kind?: string; readonly info_data?: IpipRow } = {}): Ipip | undefined {
  const { info_kind, info_data = {} } = info
  const { proto, local, remote, ttl, pmtudisc, encap } = info_data
  if (info_kind !== 'ipip' || local === undefined) return undefined
  const isPlain = proto === 'any' && remote === 'any' && ttl === 0 && pmtudisc === false
  const isFou = encap?.type === 'fou' && encap.sport === encap.dport && encap.csum !== true
  if (!isPlain || (encap && !isFou)) return undefined
  return { local: local as Ip, ...(encap?.sport !== undefined && { port: encap.sport }) }
}
