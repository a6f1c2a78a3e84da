import { contains, isSix } from './cidr.ts'
import { CniError, CODE } from './errors.ts'
import { notForwarding } from './forwarding.ts'
import { type Cidr, split } from './ip.ts'
import { rows } from './iproute.ts'
import type { LinkRow } from './kinds/link.ts'
import type { Run, Seen } from './plugin.ts'
import type { Addr, Link, Plan } from './state.ts'
import type { IfName } from './values.ts'

/** What a bridge was like before anything was set on it. */
export function bridgeSeen(name: IfName, seen: readonly Seen[]): LinkRow | undefined {
  return seen.map(({ row }) => row as LinkRow).find(({ ifname }) => ifname === name)
}

/** Throws CniError 7 for a link of the bridge's name that is none. */
export function mustBeBridge(row: LinkRow): void {
  const kind = row.linkinfo?.info_kind ?? row.link_type
  if (kind !== 'bridge') throw new CniError(CODE.config, `Cannot use "${row.ifname}" as a bridge: "${row.ifname}" already exists but is not a bridge`, `it is of type ${kind}; set "bridge" to another name`)
}

/** What brings up, and makes promiscuous where that is asked, a bridge that was found otherwise. */
export function raised({ flags }: LinkRow, { shared: _, ...bridge }: Link): Link[] {
  return flags.includes('UP') && (!bridge.promisc || flags.includes('PROMISC')) ? [] : [bridge]
}

/** The gateway addresses that a bridge still lacks, and those in their way: any other IPv4 address, an IPv6 address of an overlapping subnet (upstream's ensureAddr). Throws CniError 7 naming it when there is one and `force` is off. */
export function gatewayPlan(row: LinkRow, gateways: readonly Addr[], force: boolean): Plan {
  const held = row.addr_info.map(({ local, prefixlen }) => `${local}/${prefixlen}` as Cidr)
  const wanted = gateways.map(({ cidr }) => cidr)
  const missing = gateways.filter(({ cidr }) => !held.includes(cidr))
  const drop: Addr[] = []
  for (const { cidr, ns, dev } of missing) {
    for (const other of held) {
      if (wanted.includes(other) || isSix(other) !== isSix(cidr)) continue
      if (isSix(other) && !contains(other, split(cidr).ip) && !contains(cidr, split(other).ip)) continue
      if (!force) throw new CniError(CODE.config, `"${row.ifname}" already has an IP address different from ${cidr}`, `it has ${other}; set "forceAddress" to replace it, or another "bridge"`)
      drop.push({ kind: 'addr', ns, dev, cidr: other })
    }
  }
  return { put: missing, drop }
}

/** Throws CniError 50 when no bridge of this name can be had, 51 when there is one and the node does not forward what its pods send to the gateways on the link `gateway`. */
export async function bridgeReady(name: IfName, gateway: IfName | undefined, run: Run): Promise<void> {
  const row = await shown(name, run)
  if (!row) return
  try {
    mustBeBridge(row)
  } catch (cause) {
    throw new CniError(CODE.notReady, (cause as CniError).message, (cause as CniError).details, { cause })
  }
  const holder = gateway === name ? row : gateway && (await shown(gateway, run))
  const shut = notForwarding(holder ? [holder] : [])
  if (shut.length > 0) throw new CniError(CODE.limited, `Pods of bridge ${name} reach only each other: the node does not forward`, `sysctl ${shut.map((one) => `net/${one}`).join(', ')} is 0; the next ADD sets it to 1`)
}

async function shown(name: IfName, run: Run): Promise<LinkRow | undefined> {
  const { status, stdout } = await run(['ip', '-d', '-j', 'addr', 'show', 'dev', name], '')
  return status === 0 ? (rows(stdout)[0]?.[0] as LinkRow | undefined) : undefined
}
