/**
 * 32 hexadecimal digits that identify the content of a chain or a set: the first half of SHA-256. Two tenants write the
 * selectors from which the names come. So nobody may be able to make a text with the digest of another one.
 */
export function digest(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, 32)
}
