/** After this time of work comes a pause, as long as the work was but not longer than this. Milliseconds. */
const [WORK_MS, LONGEST_MS] = [5, 50]

/**
 * For long work beside the steps, such as a list of all connections. Call and await the result between two pieces of
 * it: it pauses about half of the time. A step with many short waits would otherwise wait for a piece of it each time.
 */
export function pauses(): () => Promise<void> {
  let since = performance.now()
  return async () => {
    const worked = performance.now() - since
    if (worked < WORK_MS) return
    // An agent that ends does not wait for the rest of the work.
    await new Promise((resolve) => setTimeout(resolve, Math.min(worked, LONGEST_MS)).unref())
    since = performance.now()
  }
}
