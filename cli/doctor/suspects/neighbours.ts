// Entries that lead packets to another MAC, or to another port.
import { jsonOf } from '../../../agent/doctor/facts/tools.ts'
import { PROTO } from '../../../agent/kernel/marks.ts'
import type { Run } from '../../../lib/os/run.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { Scope, Suspect } from './suspect.ts'

interface NeighbourRow {
  readonly dst: string
  readonly dev: string
  readonly lladdr?: string
  readonly state?: readonly string[]
  readonly protocol?: string
}

/** Fixed entries that plumb did not make, and entries of pods with another MAC. Throws Error. */
export async function readNeighbours(run: Run, { ips, macs, isPod }: Scope): Promise<Suspect[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', '-N', 'neigh', 'show'])) as NeighbourRow[]
  const all = rows.length > 0 ? rows : []
  return all.flatMap(({ dst, dev, lladdr = '', state = [], protocol }): Suspect[] => {
    const isFixed = state.includes('PERMANENT') || state.includes('NOARP')
    const mac = macs.get(dst as Ip)
    const isOther = mac !== undefined && lladdr !== '' && mac !== lladdr
    const isForeign = isFixed && protocol !== String(PROTO) && lladdr !== '' && (isPod || ips.includes(dst as Ip))
    if (!isOther && !isForeign) return []
    const what = isOther ? `, and its MAC is ${mac}` : ', which plumb did not make'
    return [
      { text: `the neighbour entry ${dst} lladdr ${lladdr} on ${dev}${what}`, undo: `ip neigh del ${dst} dev ${dev}` },
    ]
  })
}

interface FdbRow {
  readonly mac: string
  readonly ifname: string
  readonly flags?: readonly string[]
  readonly master?: string
  readonly dst?: string
  readonly state?: string
}

/** Entries of the bridge that hold a MAC at a port for ever. Throws Error. */
export async function readForwarding(run: Run, { ports, isPod }: Scope): Promise<Suspect[]> {
  if (isPod || ports.length === 0) return []
  const rows = (await jsonOf(run, ['bridge', '-json', 'fdb', 'show'])) as FdbRow[]
  const macs = new Set(
    rows
      .filter(({ state, master }) => state === 'permanent' && master !== undefined)
      .map(({ mac, ifname }) => `${mac} ${ifname}`),
  )
  return rows.flatMap(({ mac, ifname, master, state }): Suspect[] => {
    if (!ports.includes(ifname) || master === undefined || state !== 'static') return []
    if (macs.has(`${mac} ${ifname}`)) return []
    return [
      {
        text: `the forwarding entry (fdb) ${mac} of ${master} leads to port ${ifname} for ever`,
        undo: `bridge fdb del ${mac} dev ${ifname} master`,
      },
    ]
  })
}
