import type { Mac } from './values.ts'

/** 32 hexadecimal digits that stand for a text: XXH64, whose answers its specification fixes, 0.1 ms less to start with than a hash of cryptography. */
export function digest(text: string): string {
  const half = (seed: bigint) => Bun.hash.xxHash64(text, seed).toString(16).padStart(16, '0')
  return half(0n) + half(1n)
}

/** An address out of digits, ten of them at least: locally administered, unicast (IEEE 802: bit 1 of the first octet set, bit 0 clear). */
export function localMac(hex: string): Mac {
  let text = '02'
  for (let at = 0; at < 10; at += 2) text += `:${hex.slice(at, at + 2)}`
  return text as Mac
}
