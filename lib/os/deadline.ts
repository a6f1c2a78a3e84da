/**
 * The total time in ms that one CNI call may wait for tools and for other calls. A healthy tool never needs this long.
 * A tool that hangs must not block the runtime.
 */
export const LIMIT_MS = 30_000
/** The extra time in ms for a call to undo what it made. */
const GRACE_MS = 10_000
const LEAST_MS = 500
let until: number | undefined

/** Starts the time limit of a call. All its waits count together. */
export function beginCall(): void {
  until = performance.now() + LIMIT_MS
}

/** The time in ms that the next wait may take. Outside a call it is the whole limit. */
export function remaining(): number {
  if (until === undefined) return LIMIT_MS
  const left = until - performance.now()
  return left > 0 ? left : Math.max(left + GRACE_MS, LEAST_MS)
}
