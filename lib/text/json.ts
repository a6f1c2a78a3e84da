/** Whether a value is nested more than `most` deep. JSON.parse reads a hundred thousand brackets in no time; JSON.stringify, and whatever else walks through them, takes seconds to run out of stack. */
export function isDeep(value: unknown, most = 50): boolean {
  return typeof value === 'object' && value !== null && (most === 0 || Object.values(value).some((inner) => isDeep(inner, most - 1)))
}
