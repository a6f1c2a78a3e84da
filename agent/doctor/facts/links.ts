import { addressesNow, RT_SCOPE_LINK } from '../../../lib/os/link-addresses.ts'
import { linksNow } from '../../../lib/os/links.ts'
import type { Run } from '../../../lib/os/run.ts'
import { linkState } from '../../../lib/os/sockets.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import type { Fact } from './facts.ts'
import { jsonOf } from './tools.ts'

/** A link as `ip -details addr` has it. */
export interface Link {
  readonly name: string
  /** The kind, such as `vxlan`. Empty for hardware and for lo. */
  readonly kind: string
  readonly mtu: number
  readonly isUp: boolean
  /** Packets can leave by it. */
  readonly hasCarrier: boolean
  /** The name of the master, such as a bridge. */
  readonly master?: string
  readonly addresses: readonly Address[]
  /** `lower` is the link by which the tunnel sends. */
  readonly vxlan?: { readonly vni: number; readonly port: number; readonly lower?: string }
}

/** An address of a link. */
export interface Address {
  readonly ip: Ip
  readonly cidr: Cidr
  readonly isLinkLocal: boolean
  /** Another machine has this IPv6 address, so the kernel does not use it (RFC 4862, 5.4). */
  readonly isDuplicate?: true
}

interface Row {
  readonly ifname: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly master?: string
  readonly linkinfo?: {
    readonly info_kind?: string
    readonly info_data?: { readonly id?: number; readonly port?: number; readonly link?: string }
  }
  readonly addr_info?: readonly {
    readonly local?: string
    readonly prefixlen: number
    readonly scope: string
    readonly dadfailed?: boolean
  }[]
}

/** All links of the node's namespace with their addresses. */
export const links: Fact<readonly Link[]> = { read: ({ run }) => readLinks(run), inAgent: readLinksNow }

/** Reads all links with their addresses. Throws Error when `ip` fails. */
export async function readLinks(run: Run): Promise<Link[]> {
  const rows = (await jsonOf(run, ['ip', '-json', '-details', 'addr', 'show'])) as Row[]
  return rows.map((row): Link => {
    const { info_kind: kind = '', info_data: data = {} } = row.linkinfo ?? {}
    return {
      name: row.ifname,
      kind,
      mtu: row.mtu,
      isUp: row.flags.includes('UP'),
      hasCarrier: row.flags.includes('LOWER_UP'),
      ...(row.master !== undefined && { master: row.master }),
      addresses: (row.addr_info ?? []).flatMap(({ local, prefixlen, scope, dadfailed }) =>
        local === undefined
          ? []
          : [
              {
                ip: local as Ip,
                cidr: `${local}/${prefixlen}` as Cidr,
                isLinkLocal: scope === 'link',
                ...(dadfailed && { isDuplicate: true as const }),
              },
            ],
      ),
      ...(kind === 'vxlan' && {
        vxlan: { vni: data.id ?? 0, port: data.port ?? 0, ...(data.link !== undefined && { lower: data.link }) },
      }),
    }
  })
}

/** The links of the node, without what only a device of one kind has. Reads them by netlink. */
export function readLinksNow(): Link[] {
  const all = linksNow()
  const names = new Map(all.map(({ index, name }) => [index, name]))
  return all.map(({ index, name, kind, mtu, isUp, master }): Link => {
    const masterName = master === undefined ? undefined : names.get(master)
    return {
      name,
      kind,
      mtu,
      isUp,
      get hasCarrier() {
        return isUp && linkState(name) === 'running'
      },
      ...(masterName !== undefined && { master: masterName }),
      get addresses() {
        return addressesNow(index).map(({ cidr, scope }) => ({
          cidr: cidr as Cidr,
          ip: cidr.slice(0, cidr.indexOf('/')) as Ip,
          isLinkLocal: scope === RT_SCOPE_LINK,
        }))
      },
    }
  })
}
