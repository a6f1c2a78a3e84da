import type { Ip } from '../../lib/text/ip.ts'
import { ipOf, joined, numberOf } from './bytes.ts'
import { encodeOptions, OPTION6, type Options6, option6, readOptions } from './options6.ts'

/** What an association (IA_NA) says: the address and its times in seconds, or why there is none. */
export interface Association {
  readonly address?: Ip
  readonly preferred: number
  readonly valid: number
  readonly t1: number
  readonly t2: number
  /** RFC 8415 section 21.13: 0 is success. */
  readonly status: number
}

/** An association as an option's value: its number, no wish for times, and an address when there is one. */
export function encodeAssociation(id: number, address?: Uint8Array): Uint8Array {
  return joined([id, 4], [0, 4], [0, 4], ...(address ? [encodeOptions([[OPTION6.address, joined(address, [0, 4], [0, 4])]])] : []))
}

/** The client's own association among a message's options, with its first address that is still valid; undefined when it is not there, or cannot be read. */
export function associationIn(options: Options6, id: number): Association | undefined {
  for (const [code, value] of options) {
    const inner = code === OPTION6.association && value.length >= 12 && numberOf(value.subarray(0, 4)) === id ? readOptions(value.subarray(12)) : undefined
    if (!inner) continue
    const given = inner.flatMap(([one, bytes]) => (one === OPTION6.address && bytes.length >= 24 ? [bytes] : [])).find((bytes) => numberOf(bytes.subarray(20, 24)) > 0)
    const [t1, t2] = [numberOf(value.subarray(4, 8)), numberOf(value.subarray(8, 12))]
    const times = given ? { address: ipOf(given.slice(0, 16)), preferred: numberOf(given.subarray(16, 20)), valid: numberOf(given.subarray(20, 24)) } : { preferred: 0, valid: 0 }
    return { ...times, t1, t2, status: statusIn(inner) }
  }
  return undefined
}

/** The status among options: 0 when there is none. */
export function statusIn(options: Options6): number {
  const status = option6(options, OPTION6.status)
  return status && status.length >= 2 ? numberOf(status.subarray(0, 2)) : 0
}
