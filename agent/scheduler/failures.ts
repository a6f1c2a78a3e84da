/** What goes wrong, and what it concerns: the `node`, whose pods then have no network as they should, or one `part`, beside which all else works: a peer, a port. */
export interface Failure {
  readonly scope: 'node' | 'part'
  readonly text: string
}

/** What goes wrong in the agent's parts, as each of them said last. */
export interface Failures {
  /** Takes the place of what that part said before; nothing is all well. */
  report(part: string, failures: readonly Failure[]): void
  all(): readonly Failure[]
}

/** Nothing goes wrong yet; `changed` is called when something else does. */
export function keepFailures(changed: () => void): Failures {
  const known = new Map<string, readonly Failure[]>()
  return {
    report(part, failures) {
      // Who has nothing to tell keeps its place, too: they are told of in one order.
      const before = known.get(part)
      if (before && Bun.deepEquals(before, failures)) return
      known.set(part, failures)
      if (before || failures.length > 0) changed()
    },
    all: () => [...known.values()].flat(),
  }
}
