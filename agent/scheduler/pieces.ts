/** How long a piece of long work may hold the loop of the agent, in milliseconds. */
const PIECE_MS = 5

/**
 * Does work in pieces, and lets the agent do all else between them. The work yields where it may be left for a while. It
 * must not take for granted that what it has read stays as it was. `most` ends it after so much work of this thread.
 */
export async function inPieces<T>(
  work: Generator<void, T>,
  most?: { readonly ms: number; readonly error: () => Error },
): Promise<T> {
  const before = spentMs()
  for (;;) {
    const begun = performance.now()
    for (let now = begun; now - begun < PIECE_MS; now = performance.now()) {
      const step = work.next()
      if (step.done) return step.value
    }
    if (most && spentMs() - before > most.ms) throw most.error()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

// A thread of low priority may wait for the processor longer than it works.
function spentMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

/** Does such work without a pause, for a program that does nothing else. */
export function atOnce<T>(work: Generator<void, T>): T {
  for (;;) {
    const step = work.next()
    if (step.done) return step.value
  }
}
