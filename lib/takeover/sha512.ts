import { sha512 as hash } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'

/** The hexadecimal digits of SHA-512, by which the reference plugins name chains and links. */
export function sha512(text: string): string {
  return bytesToHex(hash(new TextEncoder().encode(text)))
}
