import type { Run } from '../../../lib/os/run.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { jsonOf } from './tools.ts'

/** A link as `ip -details -statistics addr` has it. */
export interface Link {
  readonly index: number
  readonly name: string
  /** The kind, such as `vxlan`. Empty for hardware and for lo. */
  readonly kind: string
  readonly mac: string
  readonly mtu: number
  readonly isUp: boolean
  /** Packets can leave by it. */
  readonly hasCarrier: boolean
  /** The name of the master, such as a bridge. */
  readonly master?: string
  /** The index of the lower link. */
  readonly on?: number
  readonly addresses: readonly { readonly ip: Ip; readonly cidr: Cidr; readonly isLinkLocal: boolean }[]
  readonly vxlan?: { readonly vni: number; readonly port: number }
  /** Packets since the link was made. */
  readonly received: number
  readonly sent: number
}

interface Row {
  readonly ifindex: number
  readonly ifname: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly master?: string
  readonly link_index?: number
  readonly link?: string
  readonly address?: string
  readonly linkinfo?: {
    readonly info_kind?: string
    readonly info_data?: { readonly id?: number; readonly port?: number }
  }
  readonly addr_info?: readonly { readonly local?: string; readonly prefixlen: number; readonly scope: string }[]
  readonly stats64?: { readonly rx: { readonly packets: number }; readonly tx: { readonly packets: number } }
}

/** Reads all links with their addresses. Throws Error when `ip` fails. */
export async function readLinks(run: Run): Promise<Link[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', '-statistics', 'addr', 'show'])) as Row[]
  const indexes = new Map(rows.map(({ ifname, ifindex }) => [ifname, ifindex]))
  return rows.map((row): Link => {
    const { info_kind: kind = '', info_data: data = {} } = row.linkinfo ?? {}
    const on = row.link_index ?? (row.link === undefined ? undefined : indexes.get(row.link))
    return {
      index: row.ifindex,
      name: row.ifname,
      kind,
      mac: row.address ?? '',
      mtu: row.mtu,
      isUp: row.flags.includes('UP'),
      hasCarrier: row.flags.includes('LOWER_UP'),
      ...(row.master !== undefined && { master: row.master }),
      ...(on !== undefined && { on }),
      addresses: (row.addr_info ?? []).flatMap(({ local, prefixlen, scope }) =>
        local === undefined
          ? []
          : [{ ip: local as Ip, cidr: `${local}/${prefixlen}` as Cidr, isLinkLocal: scope === 'link' }],
      ),
      ...(kind === 'vxlan' && { vxlan: { vni: data.id ?? 0, port: data.port ?? 0 } }),
      received: row.stats64?.rx.packets ?? 0,
      sent: row.stats64?.tx.packets ?? 0,
    }
  })
}
