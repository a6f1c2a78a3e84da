/**
 * A failure and its scope. With `node`, the pods of the node lack a working network. With `part`, everything else
 * works, for example without one peer or one port.
 */
export interface Failure {
  readonly scope: 'node' | 'part'
  readonly text: string
}

/** The current failures of the agent's parts, as each part last reported them. */
export interface Failures {
  /** Replaces the earlier report of that part. An empty list means that the part works. */
  report(part: string, failures: readonly Failure[]): void
  all(): readonly Failure[]
  /** The same by the part that reported them. */
  byPart(): ReadonlyMap<string, readonly Failure[]>
}

/** Makes an empty list of failures. `changed` is called when the failures change. */
export function keepFailures(changed: () => void): Failures {
  const known = new Map<string, readonly Failure[]>()
  return {
    report(part, failures) {
      // A part without failures keeps its place, so that the order of reports stays the same.
      const before = known.get(part)
      if (before && Bun.deepEquals(before, failures)) return
      known.set(part, failures)
      if (before || failures.length > 0) changed()
    },
    all: () => [...known.values()].flat(),
    byPart: () => known,
  }
}
