/** The checksum of the Internet protocols over these bytes (RFC 1071). All parts but the last have an even length. */
export function checksum(parts: readonly Uint8Array[]): number {
  let sum = 0
  for (const part of parts)
    for (let at = 0; at < part.length; at += 2) sum += ((part[at] as number) << 8) | (part[at + 1] ?? 0)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  return ~sum & 0xffff
}
