import * as v from 'valibot'
import type { Vlan } from '../state/kinds/vlan.ts'
import { shown, ValueError } from '../text/errors.ts'
import { field } from '../text/shape.ts'
import type { IfName } from '../text/values.ts'

/** The key `vlan`: 0 (none) to 4094, IEEE 802.1Q. The error texts are upstream's. */
export const vlanId = field.by((value) => {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 4094)
    throw new ValueError(`${shown(value)}: invalid VLAN ID (must be between 0 and 4094)`)
  return value as number
})

/** The key `vlanTrunk`: ids and ranges of ids, 1 to 4094. The error texts are upstream's. */
export const trunkShape = v.array(field.by(range))

interface PortVlans {
  readonly vlan: number
  readonly vlanTrunk: readonly Range[]
  readonly preserveDefaultVlan: boolean
}

/**
 * The VLANs of a bridge port. `vlan` is the untagged native VLAN, and the trunk's VLANs are tagged. VLAN 1 is the
 * native VLAN of a port that has only a trunk. VLAN 1 is removed when another VLAN is native, unless it must stay.
 */
export function portVlans(dev: IfName, { vlan, vlanTrunk, preserveDefaultVlan }: PortVlans): Vlan[] {
  if (vlan === 0 && vlanTrunk.length === 0) return []
  const at = { kind: 'vlan', ns: 'host', dev } as const
  const native = vlan || 1
  return [
    ...(preserveDefaultVlan || native === 1 ? [] : [{ ...at, first: 1, last: 1, absent: true as const }]),
    ...merged(vlanTrunk).map((one) => ({ ...at, ...one })),
    { ...at, first: native, last: native, pvid: true },
  ]
}

/** The VLAN ids from first to last, both included. */
interface Range {
  readonly first: number
  readonly last: number
}

function range(value: unknown): Range {
  const pairs = Object.entries((typeof value === 'object' && value) || {})
  const lower = pairs.map(([key, one]) => [key.toLowerCase(), one ?? undefined])
  const given: { id?: unknown; minid?: unknown; maxid?: unknown } = Object.fromEntries(lower)
  const refuse = (why: string) =>
    new ValueError(`${shown(value)}: ${why}, want {"id"} or {"minID", "maxID"} with numbers from 1 to 4094`)
  const good = (id: unknown) => Number.isInteger(id) && (id as number) >= 1 && (id as number) <= 4094
  if (given.minid === undefined && given.maxid === undefined && given.id === undefined)
    throw refuse('incorrect trunk id parameter')
  if (given.minid === undefined && given.maxid !== undefined)
    throw refuse('minID and maxID should be configured simultaneously, minID is missing')
  if (given.minid !== undefined && given.maxid === undefined)
    throw refuse('minID and maxID should be configured simultaneously, maxID is missing')
  if (given.minid !== undefined && !good(given.minid)) throw refuse('incorrect trunk minID parameter')
  if (given.maxid !== undefined && !good(given.maxid)) throw refuse('incorrect trunk maxID parameter')
  if ((given.minid as number) > (given.maxid as number)) throw refuse('minID is greater than maxID in trunk parameter')
  if (given.id !== undefined && !good(given.id)) throw refuse('incorrect trunk id parameter')
  if (given.minid === undefined) return { first: given.id as number, last: given.id as number }
  if (given.id !== undefined) throw refuse('"id" stands beside "minID" and "maxID"')
  return { first: given.minid as number, last: given.maxid as number }
}

function merged(ranges: readonly Range[]): Range[] {
  const out: Range[] = []
  for (const one of [...ranges].sort((a, b) => a.first - b.first)) {
    const before = out.at(-1)
    if (before && one.first <= before.last + 1)
      out[out.length - 1] = { first: before.first, last: Math.max(before.last, one.last) }
    else out.push(one)
  }
  return out
}
