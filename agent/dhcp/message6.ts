import type { Ip } from '../../lib/ip.ts'
import { ipOf, joined, numberOf } from './bytes.ts'

/** Options by their number, each as often as it came. */
export type Options6 = readonly (readonly [code: number, value: Uint8Array])[]
/** A message of DHCPv6 between client and server (RFC 8415 section 8). */
export interface Message6 {
  readonly type: number
  readonly xid: number
  readonly options: Options6
}
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

/** The types of messages (RFC 8415 section 7.3). */
export const TYPE6 = { solicit: 1, advertise: 2, request: 3, renew: 5, rebind: 6, reply: 7, release: 8 } as const
/** The options that a client reads or writes (RFC 8415 section 21, RFC 3646). */
export const OPTION6 = { client: 1, server: 2, association: 3, address: 5, request: 6, preference: 7, elapsed: 8, status: 13, rapid: 14, dns: 23, search: 24 } as const

/** A message as its bytes. */
export function encode6({ type, xid, options }: Message6): Uint8Array {
  return joined(type, xid >>> 16, [xid & 0xffff, 2], encodeOptions(options))
}

/** A server's message; undefined for bytes that are none, or that are cut short. */
export function decode6(bytes: Uint8Array): Message6 | undefined {
  const options = bytes.length < 4 ? undefined : read(bytes.subarray(4))
  return options && { type: bytes[0] as number, xid: numberOf(bytes.subarray(1, 4)), options }
}

/** The first option of a number. */
export function option6(options: Options6, code: number): Uint8Array | undefined {
  return options.find(([one]) => one === code)?.[1]
}

/** An association as an option's value: its number, no wish for times, and an address when there is one. */
export function encodeAssociation(id: number, address?: Uint8Array): Uint8Array {
  return joined([id, 4], [0, 4], [0, 4], ...(address ? [encodeOptions([[OPTION6.address, joined(address, [0, 4], [0, 4])]])] : []))
}

/** The client's own association among a message's options, with its first address that is still valid; undefined when it is not there, or cannot be read. */
export function associationIn(options: Options6, id: number): Association | undefined {
  for (const [code, value] of options) {
    const inner = code === OPTION6.association && value.length >= 12 && numberOf(value.subarray(0, 4)) === id ? read(value.subarray(12)) : undefined
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

function encodeOptions(options: Options6): Uint8Array {
  return joined(...options.map(([code, value]) => joined([code, 2], [value.length, 2], value)))
}

function read(area: Uint8Array): Options6 | undefined {
  const options: [number, Uint8Array][] = []
  for (let at = 0; at < area.length; ) {
    if (at + 4 > area.length) return undefined
    const length = numberOf(area.subarray(at + 2, at + 4))
    if (at + 4 + length > area.length) return undefined
    options.push([numberOf(area.subarray(at, at + 2)), area.slice(at + 4, at + 4 + length)])
    at += 4 + length
  }
  return options
}
