import type { IfName, Netns } from '../../text/values.ts'
import type { Handler, Line } from '../handler.ts'
import { inPodOf } from '../handler.ts'

/**
 * VLANs of a bridge port. `pvid` marks the native VLAN, which leaves untagged. The other VLANs leave tagged. The kernel
 * removes them with their port.
 */
export const vlan: Handler<Vlan> = {
  tool: 'bridge',
  title: ({ ns, dev }) => `vlan of ${dev}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, dev, first, last }) => `vlan ${ns} ${dev} ${first}-${last}`,
  put(want) {
    if (want.absent) return vlan.drop(want)
    const text = `vlan add vid ${range(want)}${want.pvid ? ' pvid untagged' : ''} dev ${want.dev}`
    return [{ text, ...(want.shared && { unless: /Cannot find (bridge )?device/ }) }]
  },
  drop: (want) => [
    { text: `vlan delete vid ${range(want)} dev ${want.dev}`, unless: /No such|Cannot find (bridge )?device/ },
  ],
  ask: ({ dev }) => `vlan show dev ${dev}`,
  read(row, want) {
    const { vlans } = row as { vlans: readonly { vlan: number; vlanEnd?: number; flags?: readonly string[] }[] }
    const isNative = want.pvid ?? false
    const alike = vlans.filter(({ flags }) => (flags?.includes('PVID') ?? false) === isNative)
    const covers = (id: number) => alike.some(({ vlan, vlanEnd }) => id >= vlan && id <= (vlanEnd ?? vlan))
    const all = Array.from({ length: want.last - want.first + 1 }, (_, i) => want.first + i)
    if (want.absent) return all.some(covers) ? undefined : want
    return all.every(covers) ? want : undefined
  },
}

/** VLANs `first` to `last` of a bridge port. With `absent` the port must not have them. */
export interface Vlan {
  readonly kind: 'vlan'
  readonly ns: Netns
  readonly dev: IfName
  readonly first: number
  readonly last: number
  readonly pvid?: true
  readonly absent?: true
  /** Another program may have made the port under another name. A missing port is no error. */
  readonly shared?: true
}

function range({ first, last }: Vlan): string {
  return first === last ? `${first}` : `${first}-${last}`
}

function purpose({ dev, first, last, pvid, absent }: Vlan, _: Line, gone: boolean): string {
  const ids = first === last ? `VLAN ${first}` : `VLANs ${first} to ${last}`
  return absent || gone
    ? `${dev} leaves ${ids}`
    : `${dev} is in ${ids}${pvid ? ', untagged, its native one' : ', tagged'}`
}
