import type { Line } from '../handler.ts'
import { closePort, createIpip, ipipOf, isSameIpip } from './ipip.ts'
import type { Link, LinkRow } from './link-shape.ts'
import { changeVxlan, createVxlan, isSameVxlan, vxlanOf } from './vxlan.ts'

/** Types of links that carry packets between nodes. */
export const OVERLAYS = ['vxlan', 'ipip', 'wireguard'] as const
/** A type of link that carries packets between nodes. */
export type Overlay = (typeof OVERLAYS)[number]

/** Whether links of a type carry packets between nodes. */
export function isOverlay(type: string | undefined): type is Overlay {
  return (OVERLAYS as readonly (string | undefined)[]).includes(type)
}

/** The lines that make a device of an overlay. Throws TypeError when the link lacks the attributes of its type. */
export function createOverlay(want: Link): Line[] {
  if (want.type === 'wireguard') return createWireguard(want)
  return want.type === 'ipip' ? createIpip(want) : createVxlan(want)
}

/**
 * The lines that change one device of an overlay into another. When the kernel cannot change it in place, the device is
 * deleted and made again.
 */
export function changeOverlay(want: Link, have: Link): Line[] {
  if (!isSameOverlay(want, have)) {
    const gone = { text: `link delete dev ${have.name}`, unless: /Cannot find device|No such device/ }
    const isKept = want.ipip?.port === have.ipip?.port
    return [gone, ...(isKept ? [] : closePort(have)), ...createOverlay(want)]
  }
  const { name, mac, mtu, alias, up } = want
  const set = [
    alias === undefined || alias === have.alias ? '' : ` alias ${alias}`,
    mac === undefined || mac === have.mac ? '' : ` address ${mac}`,
    mtu === undefined || mtu === have.mtu ? '' : ` mtu ${mtu}`,
    up === have.up ? '' : up ? ' up' : ' down',
  ].join('')
  return [...(set ? [{ text: `link set dev ${name}${set}` }] : []), ...changeVxlan(want, have)]
}

/** Whether two devices agree in all attributes that the kernel cannot change in place. */
export function isSameOverlay({ type, vxlan, ipip }: Link, other: Link): boolean {
  if (type === 'wireguard') return other.type === 'wireguard'
  if (vxlan !== undefined && other.vxlan !== undefined) return isSameVxlan(vxlan, other.vxlan)
  return ipip !== undefined && other.ipip !== undefined && isSameIpip(ipip, other.ipip)
}

/**
 * The attributes of a device of an overlay. Empty for other links and for devices with attributes that plumb never
 * sets.
 */
export function overlayOf(info: LinkRow['linkinfo']): Pick<Link, 'vxlan' | 'ipip'> {
  const [vxlan, ipip] = [vxlanOf(info), ipipOf(info)]
  return { ...(vxlan && { vxlan }), ...(ipip && { ipip }) }
}

// Its key, its port and its peers are resources of their own.
function createWireguard({ name, mtu, alias, up }: Link): Line[] {
  const create = `link add name ${name}${mtu ? ` mtu ${mtu}` : ''}${up ? ' up' : ''} type wireguard`
  return [{ text: create }, ...(alias ? [{ text: `link set dev ${name} alias ${alias}` }] : [])]
}
