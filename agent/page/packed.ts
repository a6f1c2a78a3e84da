import { inflateRawSync } from 'node:zlib'
import { ValueError } from '../../lib/text/errors.ts'

/** The most bytes that a text has after it is unpacked. */
const MOST_BYTES = 32_768

/**
 * Unpacks a text of an address: UTF-8, compressed (RFC 1951, raw deflate), as base64url. So a page can ask about a long
 * text with GET, and changes nothing. Throws ValueError.
 */
export function unpack(packed: string): string {
  try {
    const bytes = inflateRawSync(Buffer.from(packed, 'base64url'), { maxOutputLength: MOST_BYTES })
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new ValueError(`Cannot unpack the text: want UTF-8 of ${MOST_BYTES} bytes at most, deflated, as base64url`)
  }
}
