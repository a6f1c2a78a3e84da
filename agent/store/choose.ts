import { shown } from '../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { allocate, fits, overlaps } from '../lease/allocate.ts'
import type { Both } from '../lease/lease.ts'
import type { NetworkConf, Pool } from '../lease/network-configuration.ts'
import { type Draft, OutOfSubnetsError, SubnetTakenError } from './store.ts'

/** A lease or a reservation, as a store knows it. */
export interface Holding {
  readonly subnets: Both<Cidr>
  /** Undefined when the value is unreadable. */
  readonly ips?: Both<Ip> | undefined
  /** Undefined for a lease without a plumb node: a lease of flannel, or a reservation. */
  readonly node?: string | undefined
}

const FAMILIES = ['v4', 'v6'] as const

/**
 * The subnets that a node gets. `over` is an existing lease that the node takes over or keeps. Without `over`, the
 * subnets are new. `instead` is the lease that the node gives up for them.
 */
export interface Chosen<H> {
  readonly subnets: Both<Cidr>
  readonly over?: H
  readonly instead?: H
}

/** Whether a node keeps its current lease `own`. */
export function stays({ fixed, before }: Draft, conf: NetworkConf, own: Holding): boolean {
  return fits(conf, own.subnets) && (!fixed || !before || covers(own.subnets, before))
}

/**
 * Chooses subnets for a node without a lease that it can keep. `own` is a lease that the node must give up. `earlier`
 * has the subnets of a former lease of the node that is gone. The order is that of flannel: a lease with the addresses
 * of the node, then the subnets from before, then any free subnets. Throws OutOfSubnetsError. Throws SubnetTakenError
 * when only `before` is acceptable and it is not available.
 */
export function choose<H extends Holding>(
  draft: Draft,
  conf: NetworkConf,
  holdings: readonly H[],
  own?: H,
  earlier?: Both<Cidr>,
): Chosen<H> {
  const { before, fixed, node, ips } = draft
  // After a change from flannel to plumb, the lease has no node name. The addresses of the node identify it. A lease
  // with a node name belongs to that node, even behind the same NAT.
  const alike = own ? undefined : holdings.find((one) => one.node === undefined && one.ips && isSameNode(one.ips, ips))
  if (alike && stays(draft, conf, alike)) return { subnets: alike.subnets, over: alike }
  const instead = own ?? (fixed ? undefined : alike)
  const others = holdings.filter((one) => one !== instead)
  const wanted = before ?? earlier
  const subnets = allocate(conf, taken(others), wanted)
  if (subnets && (!fixed || !before || covers(subnets, before))) return { subnets, ...(instead && { instead }) }
  const reason = fixed && before && refused(before, conf, others)
  if (reason) {
    const what = `${textOf(before)} for node ${shown(node)}, whose pods have addresses of it`
    throw new SubnetTakenError(`Cannot keep ${what}: ${reason}`)
  }
  const why = full(conf, taken(others))
  const fix = 'widen the network or remove stale nodes (see: plumb leases)'
  throw new OutOfSubnetsError(`Cannot claim a subnet for node ${shown(node)}: ${why}; ${fix}`)
}

/**
 * Throws SubnetTakenError when another node already uses the name of this node: a node with another identity at another
 * address. A reinstalled node has its old address, and it gets its lease back.
 */
export function refuseNamesake(
  { node, identity, ips }: Draft,
  record: { readonly identity?: string } | undefined,
  own: Pick<Holding, 'subnets' | 'ips'> | undefined,
): void {
  if (!isAnothers(record, identity) || !own?.ips || isSameNode(own.ips, ips)) return
  const why = `the node at ${textOf(own.ips)} has it, and ${textOf(own.subnets)}`
  const fix = 'another name (--node-name), or, when that node is gone for good, remove its lease from the store'
  throw new SubnetTakenError(`Cannot use the node name ${shown(node)}: ${why}; want ${fix}`)
}

/**
 * Whether the record of a name belongs to a node with another identity. A record without an identity may belong to any
 * node, so the result is then false.
 */
export function isAnothers(record: { readonly identity?: string } | undefined, identity: string | undefined): boolean {
  return identity !== undefined && record?.identity !== undefined && record.identity !== identity
}

// `subnets` may have a family that `before` lacks, because the network may have gained a second family.
function covers(subnets: Both<Cidr>, before: Both<Cidr>): boolean {
  return (before.v4 === undefined || before.v4 === subnets.v4) && (before.v6 === undefined || before.v6 === subnets.v6)
}

function isSameNode(a: Both<Ip>, b: Both<Ip>): boolean {
  const both = FAMILIES.filter((family) => a[family] && b[family])
  return both.length > 0 && both.every((family) => a[family] === b[family])
}

function taken(holdings: readonly Holding[]): readonly Both<Cidr>[] {
  return holdings.map(({ subnets }) => subnets)
}

function refused(before: Both<Cidr>, conf: NetworkConf, others: readonly Holding[]): string | undefined {
  const other = others.find(({ subnets }) => overlaps(subnets, before))
  if (other) return `${textOf(other.subnets)} belongs to ${ownerOf(other)}`
  const wanted = FAMILIES.filter((family) => before[family])
  if (fits(Object.fromEntries(wanted.map((family) => [family, conf[family]])), before)) return undefined
  const pools = FAMILIES.flatMap((family) => conf[family] ?? [])
  return `the network has no such subnet; want ${pools.map(described).join(' and ')}`
}

function ownerOf({ node, ips = {} }: Holding): string {
  if (node !== undefined) return `node ${shown(node)}`
  return `the node at ${textOf(ips) || 'an address that cannot be read'}`
}

function full(conf: NetworkConf, others: readonly Both<Cidr>[]): string {
  const used = FAMILIES.filter((family) => conf[family] && !allocate({ [family]: conf[family] }, others))
  const pools = used.flatMap((family) => conf[family] ?? [])
  return `${pools.map((pool) => `every ${described(pool)}`).join(' and ')} is taken`
}

function described({ network, length, min, max }: Pool): string {
  return `/${length} of ${network} from ${min} to ${max}`
}

function textOf({ v4, v6 }: Both<string>): string {
  return [v4, v6].filter(Boolean).join(' and ')
}
