import type { Ip } from '../../text/ip.ts'
import type { IfName, Netns } from '../../text/values.ts'
import { type Handler, inPodOf } from '../handler.ts'

/**
 * A nexthop object (ip-nexthop(8)). The kernel hashes a route through such an object by the object's number. It keeps
 * all other routes of one device in one hash bucket.
 */
export interface Nexthop {
  readonly kind: 'nexthop'
  readonly ns: Netns
  readonly id: number
  readonly via: Ip
  readonly dev: IfName
  readonly onlink?: true
  readonly proto: number
}

/**
 * Nexthop objects. Uses `add` for new objects, never `replace`: another program may own the id. The kernel removes the
 * routes of a removed object.
 */
export const nexthop: Handler<Nexthop> = {
  tool: 'ip',
  title: ({ ns, dev, via }) => `nexthop ${via} on ${dev}${inPodOf(ns)}`,
  purpose: ({ via, dev }) => `routes go by ${via} on ${dev}`,
  key: ({ ns, id }) => `nexthop ${ns} ${id}`,
  put: (want) => [{ text: `nexthop add ${line(want)}` }],
  drop: ({ id }) => [{ text: `nexthop delete id ${id}`, unless: /does not exist|No such/ }],
  change: (want) => [{ text: `nexthop replace ${line(want)}` }],
  ask: () => 'nexthop show',
  read(row, want) {
    const { id, gateway, dev, protocol, flags = [] } = row as NexthopRow
    const isOwn = id === want.id && Number(protocol) === want.proto
    const isSameHop = gateway === want.via && dev === want.dev
    const isSameFlag = flags.includes('onlink') === (want.onlink ?? false)
    return isOwn && isSameHop && isSameFlag ? want : undefined
  },
}

/** One nexthop object in the output of `ip -j nexthop show`. */
export interface NexthopRow {
  readonly id: number
  readonly gateway?: string
  readonly dev?: string
  readonly protocol?: string
  readonly flags?: readonly string[]
}

function line({ id, via, dev, onlink, proto }: Nexthop): string {
  return `id ${id} via ${via} dev ${dev}${onlink ? ' onlink' : ''} proto ${proto}`
}
