import type { Ip } from '../../text/ip.ts'
import type { Line } from '../handler.ts'
import type { Ipip, IpipRow, Link } from './link-shape.ts'

/**
 * The lines that make an ipip device, like flannel does: the outer packets have the inner packets' TTL and may be
 * fragmented. Throws TypeError without attributes.
 */
export function createIpip({ name, mtu, alias, up, ipip }: Link): Line[] {
  if (!ipip) throw new TypeError(`the ipip device ${name} has no attributes`)
  const set = `${mtu ? ` mtu ${mtu}` : ''}${up ? ' up' : ''}`
  const create = `link add name ${name}${set} type ipip local ${ipip.local} remote any ttl inherit nopmtudisc`
  return [{ text: create }, ...(alias ? [{ text: `link set dev ${name} alias ${alias}` }] : [])]
}

/** The attributes of an ipip device. Undefined for other links and for devices with attributes that plumb never sets. */
export function ipipOf(info: { readonly info_kind?: string; readonly info_data?: IpipRow } = {}): Ipip | undefined {
  const { info_kind, info_data = {} } = info
  const { proto, local, remote, ttl, pmtudisc } = info_data
  if (info_kind !== 'ipip' || local === undefined) return undefined
  const isPlain = proto === 'any' && remote === 'any' && ttl === 0 && pmtudisc === false
  return isPlain ? { local: local as Ip } : undefined
}
