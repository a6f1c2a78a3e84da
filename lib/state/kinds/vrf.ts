import type { IfName } from '../../text/values.ts'
import type { Vrf } from '../policy-routing.ts'
import type { Handler } from '../resource.ts'

/** VRFs: one that is there already serves; whether it has to go is for the caller, who knows its other ports. */
export const vrf: Handler<Vrf> = {
  tool: 'ip',
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
