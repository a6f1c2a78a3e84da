/**
 * 32 hexadecimal digits that identify a text: MurmurHash3_x86_128 of its UTF-8 bytes, with seed 0. The algorithm needs
 * only 32-bit arithmetic, which is fast in an engine without a compiler. It is no protection against a person who wants
 * two texts with one digest.
 */
export function digest(text: string): string {
  if (text.length > LONGEST_KEPT) return computed(text)
  const found = kept.get(text)
  if (found !== undefined) return found
  if (kept.size === MOST_KEPT) kept.clear()
  const made = computed(text)
  kept.set(text, made)
  return made
}

// A call of a plugin asks for the digest of its owner several times, and for that of its journal entry at each reading.
// Without these that was half of what its engine did in a DEL, and a third in an ADD.
const kept = new Map<string, string>()
const [MOST_KEPT, LONGEST_KEPT] = [50, 4096]

function computed(text: string): string {
  return words(text).map(hexOf).join('')
}

/** The first word of `digest`: a number of 32 bits. */
export function shortDigest(text: string): number {
  return words(text)[0]
}

const { imul } = Math
const [C1, C2, C3, C4] = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93]

function words(text: string): [number, number, number, number] {
  const bytes = new TextEncoder().encode(text)
  const { length } = bytes
  // The rest has at most 15 bytes. Missing bytes count as 0. x86-64 and arm64 keep numbers as the algorithm reads them.
  const padded = new Uint8Array((length & ~15) + 16)
  padded.set(bytes)
  const data = new Int32Array(padded.buffer)
  const rest = data.length - 4
  let [h1, h2, h3, h4, k] = [0, 0, 0, 0, 0]
  // Turns are written out: in an engine without a compiler a function for them took half of the time.
  for (let at = 0; at < rest; at += 4) {
    k = imul(data[at] as number, C1)
    h1 ^= imul((k << 15) | (k >>> 17), C2)
    h1 = (imul(((h1 << 19) | (h1 >>> 13)) + h2, 5) + 0x561ccd1b) | 0
    k = imul(data[at + 1] as number, C2)
    h2 ^= imul((k << 16) | (k >>> 16), C3)
    h2 = (imul(((h2 << 17) | (h2 >>> 15)) + h3, 5) + 0x0bcaa747) | 0
    k = imul(data[at + 2] as number, C3)
    h3 ^= imul((k << 17) | (k >>> 15), C4)
    h3 = (imul(((h3 << 15) | (h3 >>> 17)) + h4, 5) + 0x96cd1c35) | 0
    k = imul(data[at + 3] as number, C4)
    h4 ^= imul((k << 18) | (k >>> 14), C1)
    h4 = (imul(((h4 << 13) | (h4 >>> 19)) + h1, 5) + 0x32ac3b17) | 0
  }
  k = imul(data[rest + 3] as number, C4)
  h4 ^= imul((k << 18) | (k >>> 14), C1)
  k = imul(data[rest + 2] as number, C3)
  h3 ^= imul((k << 17) | (k >>> 15), C4)
  k = imul(data[rest + 1] as number, C2)
  h2 ^= imul((k << 16) | (k >>> 16), C3)
  k = imul(data[rest] as number, C1)
  h1 ^= imul((k << 15) | (k >>> 17), C2)
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

function mixed(word: number): number {
  let h = imul(word ^ (word >>> 16), 0x85ebca6b)
  h = imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

function hexOf(word: number): string {
  return word.toString(16).padStart(8, '0')
}
