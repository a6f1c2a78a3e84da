/**
 * Skips the running test, or from a `before` hook its whole suite, with the reason that the run prints. The run fails
 * for a skip without one.
 */
export function skip(test: Mocha.Context, reason: string): never {
  const running = test.test as Mocha.Runnable & { type?: string }
  Object.assign((running.type === 'hook' && running.parent) || running, { skipped: reason })
  return test.skip()
}
