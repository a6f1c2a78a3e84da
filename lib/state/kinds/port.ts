import type { Fdb, Handler, Vlan } from '../resource.ts'

/** Static entries of a bridge's forwarding table; `sticky` keeps another port from taking the address over (bridge(8)). They go with their port. */
export const fdb: Handler<Fdb> = {
  tool: 'bridge',
  key: ({ ns, dev, mac }) => `fdb ${ns} ${dev} ${mac}`,
  put: ({ dev, mac }) => [{ text: `fdb replace ${mac} dev ${dev} master static sticky` }],
  drop: ({ dev, mac }) => [{ text: `fdb delete ${mac} dev ${dev} master`, unless: /No such file|Cannot find device/ }],
  ask: ({ dev }) => `fdb show dev ${dev}`,
  read(row, want) {
    const { mac, state, flags } = row as { mac: string; state?: string; flags?: readonly string[] }
    return mac === want.mac && state === 'static' && flags?.includes('sticky') ? want : undefined
  },
}

/** VLANs of a bridge port: `pvid` is the native one, untagged; the others leave tagged. They go with their port. */
export const vlan: Handler<Vlan> = {
  tool: 'bridge',
  key: ({ ns, dev, first, last }) => `vlan ${ns} ${dev} ${first}-${last}`,
  put: (want) => (want.absent ? vlan.drop(want) : [{ text: `vlan add vid ${range(want)}${want.pvid ? ' pvid untagged' : ''} dev ${want.dev}`, ...(want.shared && { unless: /Cannot find (bridge )?device/ }) }]),
  drop: (want) => [{ text: `vlan delete vid ${range(want)} dev ${want.dev}`, unless: /No such|Cannot find (bridge )?device/ }],
  ask: ({ dev }) => `vlan show dev ${dev}`,
  read(row, want) {
    const { vlans } = row as { vlans: readonly { vlan: number; vlanEnd?: number; flags?: readonly string[] }[] }
    const covers = (id: number) => vlans.some(({ vlan, vlanEnd, flags }) => id >= vlan && id <= (vlanEnd ?? vlan) && (want.pvid ?? false) === (flags?.includes('PVID') ?? false))
    const all = Array.from({ length: want.last - want.first + 1 }, (_, i) => want.first + i)
    if (want.absent) return all.some(covers) ? undefined : want
    return all.every(covers) ? want : undefined
  },
}

function range({ first, last }: Vlan): string {
  return first === last ? `${first}` : `${first}-${last}`
}
