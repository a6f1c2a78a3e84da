/**
 * Does the same as Object.fromEntries. The first call of Object.fromEntries takes a plugin longer than all objects that
 * this function makes.
 */
export function objectOf<T>(entries: Iterable<readonly [string, T]>): Record<string, T> {
  const out: Record<string, T> = {}
  for (const [key, value] of entries)
    if (key === '__proto__')
      Object.defineProperty(out, key, { value, configurable: true, enumerable: true, writable: true })
    else out[key] = value
  return out
}
