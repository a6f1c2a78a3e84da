/**
 * Decodes a list of domain names in DNS format (RFC 1035 section 4.1.4, RFC 3397, RFC 8415 section 10). Compression
 * pointers refer to positions in the list. The list ends at the first bad name. A bad name is truncated, has a pointer
 * loop, or has characters that a resolver does not accept.
 */
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
// The maximum length of a domain name (RFC 1035 section 2.3.4).
const LONGEST = 255
// The maximum number of names, more than any resolver uses.
// Without a limit, names with pointers to each other could grow to thousands of times the size of the packet.
const MOST = 64

function nameAt(bytes: Uint8Array, start: number): { readonly name: string; readonly next: number } | undefined {
  const labels: string[] = []
  let next: number | undefined
  for (let at = start, left = LONGEST; left > 0; left--) {
    const length = bytes[at]
    if (length === undefined) return undefined
    if (length === 0)
      return labels.join('.').length > LONGEST ? undefined : { name: labels.join('.'), next: next ?? at + 1 }
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
