import { bitsOf, format, type Ip } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'

/** Encodes an IP address as 4 or 16 bytes. */
export function bytesOf(ip: Ip): Uint8Array {
  const { family, bits } = bitsOf(ip)
  const length = family === 4 ? 4 : 16
  return Uint8Array.from({ length }, (_, i) => Number((bits >> BigInt(8 * (length - 1 - i))) & 0xffn))
}

/** Decodes 4 or 16 bytes as an IP address. */
export function ipOf(bytes: Uint8Array): Ip {
  return format({
    family: bytes.length === 4 ? 4 : 6,
    bits: bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n),
  })
}

/** Encodes an Ethernet address as 6 bytes. */
export function macBytes(mac: Mac): Uint8Array {
  return Uint8Array.from(mac.split(':'), (pair) => Number.parseInt(pair, 16))
}

/**
 * Concatenates the parts. A plain number becomes 1 byte. A pair [number, size] becomes `size` bytes in network order.
 */
export function joined(...parts: readonly (number | readonly [number, 2 | 4] | Uint8Array)[]): Uint8Array {
  return Uint8Array.from(
    parts.flatMap((part) => (typeof part === 'number' ? [part] : part instanceof Uint8Array ? [...part] : split(part))),
  )
}

// Uses division, because a bit shift treats a 32-bit number as signed.
function split([value, size]: readonly [number, 2 | 4]): number[] {
  return Array.from({ length: size }, (_, i) => Math.floor(value / 256 ** (size - 1 - i)) % 256)
}

/** Decodes up to 4 bytes in network order as an unsigned number. */
export function numberOf(bytes: Uint8Array): number {
  return bytes.reduce((sum, byte) => sum * 256 + byte, 0)
}
