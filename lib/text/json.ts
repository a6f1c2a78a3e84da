/**
 * Whether a value is nested more than `most` levels deep. JSON.parse reads a hundred thousand brackets at once. JSON.stringify and
 * other recursive functions take seconds until the stack overflows.
 */
export function isDeep(value: unknown, most = 50): boolean {
  return typeof value === 'object' && value !== null && (most === 0 || Object.values(value).some((inner) => isDeep(inner, most - 1)))
}
