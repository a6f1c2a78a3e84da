import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'

/**
 * A VRF (ip-vrf(8)). Its ports have a separate routing table. Ports of several attachments may share a VRF. The VRF
 * goes with its last port.
 */
export interface Vrf {
  readonly kind: 'vrf'
  readonly ns: Netns
  readonly name: IfName
  readonly table: number
}

/** VRFs. An existing VRF of the name serves. The caller, which knows the other ports, decides whether to remove it. */
export const vrf: Handler<Vrf> = {
  tool: 'ip',
  title: ({ ns, name }) => `VRF ${name}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, name }) => `vrf ${ns} ${name}`,
  put: ({ name, table }) => [{ text: `link add name ${name} up type vrf table ${table}`, unless: /File exists/ }],
  drop: ({ name }) => [{ text: `link delete dev ${name}`, unless: /Cannot find device/ }],
  ask: ({ name }) => `addr show dev ${name}`,
  read(row, { ns }) {
    const { ifname, linkinfo: { info_kind, info_data: { table = 0 } = {} } = {} } = row as VrfRow
    return info_kind === 'vrf' ? { kind: 'vrf', ns, name: ifname as IfName, table } : undefined
  },
}

interface VrfRow {
  readonly ifname: string
  readonly linkinfo?: { readonly info_kind?: string; readonly info_data?: { readonly table?: number } }
}

function purpose({ name, table }: Vrf, _: Line, gone: boolean): string {
  return gone ? `${name}, whose last port this was` : `the VRF, with routes of its own in table ${table}`
}
