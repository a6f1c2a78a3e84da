import type { Ip } from '../../text/ip.ts'
import type { IfName } from '../../text/values.ts'
import type { Line } from '../handler.ts'
import type { Link, Vxlan, VxlanRow } from './link-shape.ts'

// Attributes that plumb never sets. They change where packets go, or what the kernel asks of user space.
const FOREIGN = ['group', 'group6', 'remote', 'remote6', 'external', 'l2miss', 'l3miss', 'proxy', 'rsc']

/**
 * The lines that make a VXLAN device, like flannel does. The device is up from the start, so that the kernel reports it
 * only once. Throws TypeError without attributes.
 */
export function createVxlan(want: Link): Line[] {
  const { name, mac, mtu, alias, up, vxlan } = want
  if (!vxlan) throw new TypeError(`the VXLAN device ${name} has no attributes`)
  const { id, dev, local, port, learning, gbp } = vxlan
  const set = `${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}${up ? ' up' : ''}`
  const underlay = `dev ${dev} local ${local} dstport ${port}`
  const tunnel = `id ${id} ${underlay} ${learns(learning)} udpcsum${gbp ? ' gbp' : ''}`
  const create = `link add name ${name}${set} type vxlan ${tunnel}`
  return [{ text: create }, ...(alias ? [{ text: `link set dev ${name} alias ${alias}` }] : [])]
}

/** The line that changes the only attribute of a VXLAN device that the kernel can change in place. */
export function changeVxlan({ name, vxlan: want }: Link, { vxlan: have }: Link): Line[] {
  if (want?.learning === have?.learning) return []
  return [{ text: `link set dev ${name} type vxlan id ${want?.id} ${learns(want?.learning)}` }]
}

/** Whether two VXLAN devices agree in all attributes that the kernel cannot change in place. */
export function isSameVxlan(one: Vxlan, other: Vxlan): boolean {
  return (['id', 'dev', 'local', 'port', 'gbp'] as const).every((key) => one[key] === other[key])
}

/**
 * The attributes of a VXLAN device. Undefined for other links and for devices with attributes that plumb never sets.
 */
export function vxlanOf(info: { readonly info_kind?: string; readonly info_data?: VxlanRow } = {}): Vxlan | undefined {
  const { info_kind, info_data = {} } = info
  const { id, link, local, local6, port, learning, gbp } = info_data
  const own = local ?? local6
  if (info_kind !== 'vxlan' || id === undefined || link === undefined || own === undefined || port === undefined)
    return undefined
  if (FOREIGN.some((key) => (info_data as Record<string, unknown>)[key])) return undefined
  return {
    id,
    dev: link as IfName,
    local: own as Ip,
    port,
    learning: learning ?? false,
    ...(gbp ? { gbp: true as const } : {}),
  }
}

function learns(learning: boolean | undefined): string {
  return learning ? 'learning' : 'nolearning'
}
