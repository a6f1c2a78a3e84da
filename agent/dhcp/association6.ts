import type { Ip } from '../../lib/text/ip.ts'
import { ipOf, joined, numberOf } from './bytes.ts'
import { encodeOptions, OPTION6, type Options6, option6, readOptions } from './options6.ts'

/**
 * An identity association for non-temporary addresses (IA_NA).
 * It has the address and its times in seconds, or the status that explains a missing address.
 */
export interface Association {
  readonly address?: Ip
  readonly preferred: number
  readonly valid: number
  readonly t1: number
  readonly t2: number
  /** The status code (RFC 8415 section 21.13). 0 is success. */
  readonly status: number
}

/** Encodes an IA_NA option's value: the association's number, zero times (no preference), and the address if given. */
export function encodeAssociation(id: number, address?: Uint8Array): Uint8Array {
  const head = joined([id, 4], [0, 4], [0, 4])
  return address ? joined(head, encodeOptions([[OPTION6.address, joined(address, [0, 4], [0, 4])]])) : head
}

/** Finds the association with this number, and its first valid address. Undefined when it is missing or malformed. */
export function associationIn(options: Options6, id: number): Association | undefined {
  for (const [code, value] of options) {
    if (code !== OPTION6.association || value.length < 12 || numberOf(value.subarray(0, 4)) !== id) continue
    const inner = readOptions(value.subarray(12))
    if (!inner) continue
    const given = inner
      .flatMap(([one, bytes]) => (one === OPTION6.address && bytes.length >= 24 ? [bytes] : []))
      .find((bytes) => numberOf(bytes.subarray(20, 24)) > 0)
    const [t1, t2] = [numberOf(value.subarray(4, 8)), numberOf(value.subarray(8, 12))]
    const status = statusIn(inner)
    if (!given) return { preferred: 0, valid: 0, t1, t2, status }
    const [preferred, valid] = [numberOf(given.subarray(16, 20)), numberOf(given.subarray(20, 24))]
    return { address: ipOf(given.slice(0, 16)), preferred, valid, t1, t2, status }
  }
  return undefined
}

/** The status code in the options. 0 when the options have no status. */
export function statusIn(options: Options6): number {
  const status = option6(options, OPTION6.status)
  return status && status.length >= 2 ? numberOf(status.subarray(0, 2)) : 0
}
