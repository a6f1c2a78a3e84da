import { joined, numberOf } from './bytes.ts'
import { encodeOptions, type Options6, readOptions } from './options6.ts'

/** A DHCPv6 message between client and server (RFC 8415 section 8). */
export interface Message6 {
  readonly type: number
  readonly xid: number
  readonly options: Options6
}

/** The message types (RFC 8415 section 7.3). */
export const TYPE6 = { solicit: 1, advertise: 2, request: 3, renew: 5, rebind: 6, reply: 7, release: 8 } as const

/** Encodes a message. */
export function encode6({ type, xid, options }: Message6): Uint8Array {
  return joined(type, xid >>> 16, [xid & 0xffff, 2], encodeOptions(options))
}

/** Decodes a server's message. Undefined for bytes that are not a message, and for truncated bytes. */
export function decode6(bytes: Uint8Array): Message6 | undefined {
  const options = bytes.length < 4 ? undefined : readOptions(bytes.subarray(4))
  return options && { type: bytes[0] as number, xid: numberOf(bytes.subarray(1, 4)), options }
}
