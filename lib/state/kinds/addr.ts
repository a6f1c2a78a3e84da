import { type Cidr, split } from '../../text/ip.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import type { LinkRow } from './link-shape.ts'

/** An address on a link. */
export interface Addr {
  readonly kind: 'addr'
  readonly ns: Netns
  readonly dev: IfName
  readonly cidr: Cidr
  /** Duplicate address detection stays on. The address is tentative for one to two seconds (RFC 4862). */
  readonly dad?: true
  /** Another program gave the link this address. `drop` does not remove the address. */
  readonly stays?: true
  /** The address is valid on its link only (IPv4). The kernel prefers other addresses as source. */
  readonly scope?: 'link'
  /** The kernel makes no route to the subnet of the address. */
  readonly noprefixroute?: true
}

const GONE = /Cannot (find device|assign requested address)|Address not found/

/**
 * Addresses of links. IPv6 addresses skip duplicate address detection unless `dad` asks for it. A pool gives each
 * address out once, and the detection takes 1 to 2 s.
 */
export const addr: Handler<Addr> = {
  tool: 'ip',
  title: ({ ns, dev, cidr }) => `address ${cidr} on ${dev}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, dev, cidr }) => `addr ${ns} ${dev} ${cidr}`,
  put({ dev, cidr, dad, noprefixroute, scope }) {
    const { family, length } = split(cidr)
    const extra = family === 6 ? (dad ? '' : ' nodad') : length < 31 ? ' brd +' : ''
    const rest = `${scope ? ` scope ${scope}` : ''}${noprefixroute ? ' noprefixroute' : ''}`
    return [{ text: `addr replace ${cidr}${extra} dev ${dev}${rest}` }]
  },
  drop: ({ dev, cidr, stays }) => (stays ? [] : [{ text: `addr delete ${cidr} dev ${dev}`, unless: GONE }]),
  ask: ({ dev }) => `addr show dev ${dev}`,
  read(row, want) {
    const found = (row as LinkRow).addr_info.find(({ local, prefixlen }) => `${local}/${prefixlen}` === want.cidr)
    if (!found || found.dadfailed === true) return undefined
    const { ns, dev } = want
    const cidr = `${found.local}/${found.prefixlen}` as Cidr
    return { kind: 'addr', ns, dev, cidr, ...(want.scope && { scope: found.scope as 'link' }) }
  },
}

function purpose({ ns, dev, dad, noprefixroute }: Addr, _: Line, gone: boolean): string {
  if (gone) return `${dev} loses it`
  const extra = [
    dad ? 'made sure of first (enabledad)' : '',
    noprefixroute ? 'without a route of its own to the subnet' : '',
  ].filter(Boolean)
  return [ns === 'host' ? `the gateway of the pods, on ${dev}` : "the pod's address", ...extra].join(', ')
}
