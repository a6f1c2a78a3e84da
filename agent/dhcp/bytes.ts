import { bitsOf, format, type Ip } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'

/** An address as its 4 or 16 bytes. */
export function bytesOf(ip: Ip): Uint8Array {
  const { family, bits } = bitsOf(ip)
  const length = family === 4 ? 4 : 16
  return Uint8Array.from({ length }, (_, i) => Number((bits >> BigInt(8 * (length - 1 - i))) & 0xffn))
}

/** The address of 4 or 16 bytes. */
export function ipOf(bytes: Uint8Array): Ip {
  return format({ family: bytes.length === 4 ? 4 : 6, bits: bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n) })
}

/** The 6 bytes of an Ethernet address. */
export function macBytes(mac: Mac): Uint8Array {
  return Uint8Array.from(mac.split(':'), (pair) => Number.parseInt(pair, 16))
}

/** Bytes one after the other: numbers as 1, or, as [number, size], as `size` bytes in network order. */
export function joined(...parts: readonly (number | readonly [number, 2 | 4] | Uint8Array)[]): Uint8Array {
  return Uint8Array.from(parts.flatMap((part) => (typeof part === 'number' ? [part] : part instanceof Uint8Array ? [...part] : split(part))))
}

// Unsigned: a shift of 32-bit numbers would give the sign along.
function split([value, size]: readonly [number, 2 | 4]): number[] {
  return Array.from({ length: size }, (_, i) => Math.floor(value / 256 ** (size - 1 - i)) % 256)
}

/** A number of up to 4 bytes in network order. */
export function numberOf(bytes: Uint8Array): number {
  return bytes.reduce((sum, byte) => sum * 256 + byte, 0)
}
