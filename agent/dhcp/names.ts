/** Domain names as DNS writes them, pointers within the list too (RFC 1035 section 4.1.4, RFC 3397, RFC 8415 section 10); a name that is cut short, turns in circles or has other letters than a resolver takes ends the list. */
export function namesIn(bytes: Uint8Array = new Uint8Array()): string[] {
  const names: string[] = []
  for (let at = 0; at < bytes.length && names.length < MOST; ) {
    const found = nameAt(bytes, at)
    if (!found) break
    if (found.name !== '') names.push(found.name)
    at = found.next
  }
  return names
}

const POINTER = 0xc0
// RFC 1035 section 2.3.4.
const LONGEST = 255
// More than any resolver takes: names that point to each other would be thousands of times longer than the packet.
const MOST = 64

function nameAt(bytes: Uint8Array, start: number): { readonly name: string; readonly next: number } | undefined {
  const labels: string[] = []
  let next: number | undefined
  for (let at = start, left = LONGEST; left > 0; left--) {
    const length = bytes[at]
    if (length === undefined) return undefined
    if (length === 0) return labels.join('.').length > LONGEST ? undefined : { name: labels.join('.'), next: next ?? at + 1 }
    if (length >= POINTER) {
      next ??= at + 2
      at = (length - POINTER) * 256 + (bytes[at + 1] ?? bytes.length)
      continue
    }
    const label = new TextDecoder().decode(bytes.subarray(at + 1, at + 1 + length))
    if (length > 63 || at + 1 + length > bytes.length || !/^[\w-]+$/.test(label)) return undefined
    labels.push(label)
    at += 1 + length
  }
  return undefined
}
