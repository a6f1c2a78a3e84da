/**
 * 32 hexadecimal digits that identify a text: MurmurHash3_x86_128 of its UTF-8 bytes, with seed 0. The algorithm needs
 * only 32-bit arithmetic, which is fast in an engine without a compiler. It is no protection against a person who wants
 * two texts with one digest.
 */
export function digest(text: string): string {
  return words(text).map(hexOf).join('')
}

/** The first word of `digest`: a number of 32 bits. */
export function shortDigest(text: string): number {
  return words(text)[0]
}

const [C1, C2, C3, C4] = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93]

function words(text: string): [number, number, number, number] {
  const bytes = new TextEncoder().encode(text)
  const { length } = bytes
  const whole = length & ~15
  const view = new DataView(bytes.buffer, bytes.byteOffset, length)
  let [h1, h2, h3, h4] = [0, 0, 0, 0]
  for (let at = 0; at < whole; at += 16) {
    h1 ^= Math.imul(turned(Math.imul(view.getInt32(at, true), C1), 15), C2)
    h1 = (Math.imul(turned(h1, 19) + h2, 5) + 0x561ccd1b) | 0
    h2 ^= Math.imul(turned(Math.imul(view.getInt32(at + 4, true), C2), 16), C3)
    h2 = (Math.imul(turned(h2, 17) + h3, 5) + 0x0bcaa747) | 0
    h3 ^= Math.imul(turned(Math.imul(view.getInt32(at + 8, true), C3), 17), C4)
    h3 = (Math.imul(turned(h3, 15) + h4, 5) + 0x96cd1c35) | 0
    h4 ^= Math.imul(turned(Math.imul(view.getInt32(at + 12, true), C4), 18), C1)
    h4 = (Math.imul(turned(h4, 13) + h1, 5) + 0x32ac3b17) | 0
  }
  // The rest has at most 15 bytes. Missing bytes count as 0.
  const rest = new DataView(new ArrayBuffer(16))
  for (let at = whole; at < length; at++) rest.setUint8(at - whole, bytes[at] as number)
  h4 ^= Math.imul(turned(Math.imul(rest.getInt32(12, true), C4), 18), C1)
  h3 ^= Math.imul(turned(Math.imul(rest.getInt32(8, true), C3), 17), C4)
  h2 ^= Math.imul(turned(Math.imul(rest.getInt32(4, true), C2), 16), C3)
  h1 ^= Math.imul(turned(Math.imul(rest.getInt32(0, true), C1), 15), C2)
  h1 ^= length
  h2 ^= length
  h3 ^= length
  h4 ^= length
  h1 = (h1 + h2 + h3 + h4) | 0
  h2 = (h2 + h1) | 0
  h3 = (h3 + h1) | 0
  h4 = (h4 + h1) | 0
  h1 = mixed(h1)
  h2 = mixed(h2)
  h3 = mixed(h3)
  h4 = mixed(h4)
  h1 = (h1 + h2 + h3 + h4) | 0
  return [h1 >>> 0, (h2 + h1) >>> 0, (h3 + h1) >>> 0, (h4 + h1) >>> 0]
}

function turned(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits))
}

function mixed(word: number): number {
  let h = Math.imul(word ^ (word >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

function hexOf(word: number): string {
  return word.toString(16).padStart(8, '0')
}
