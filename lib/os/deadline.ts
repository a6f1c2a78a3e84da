/** How long one CNI call may wait for all that it waits for: tools, and other calls. No tool that works needs this long; one that hangs must not hang the runtime. */
export const LIMIT_MS = 30_000
/** What a call has beyond that to take back what it made. */
const GRACE_MS = 10_000
const LEAST_MS = 500
let until: number | undefined

/** A call begins: from now on its waits are counted together. */
export function beginCall(): void {
  until = performance.now() + LIMIT_MS
}

/** How long the next wait may take, in ms; outside a call the whole limit. */
export function remaining(): number {
  if (until === undefined) return LIMIT_MS
  const left = until - performance.now()
  return left > 0 ? left : Math.max(left + GRACE_MS, LEAST_MS)
}
