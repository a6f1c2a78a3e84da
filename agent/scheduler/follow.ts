import { delays, pause } from './pause.ts'

/** A server does not answer, or not as it should: what was asked can be asked again. */
export class UnavailableError extends Error {
  override name = 'UnavailableError'
}

/** What can be listed as of a revision, and watched from there on: a prefix of etcd, a kind of Kubernetes objects. `Revision` is the server's own word for it. */
export interface Source<Revision, Answer> {
  /** The revision up to which everything is known; undefined when it has to be listed first. */
  known(): Revision | undefined
  /** Lists everything, and takes over what differs: nothing that still stands is forgotten for a moment. Throws UnavailableError when the server does not answer. */
  list(signal: AbortSignal): Promise<void>
  /** One watch, from the revision after this one. It ends, or throws UnavailableError, when the connection does. */
  watch(after: Revision, signal: AbortSignal): AsyncIterable<Answer>
  /** Takes over what the watch tells. False when the server no longer has all changes since the last revision (etcd: compacted; Kubernetes: 410 Gone): everything is listed again. */
  apply(answer: Answer): boolean
  /** Told when a watch begins to keep everything up to date, and when it no longer does. */
  live?(isLive: boolean): void
}

/** How long to wait between attempts, and how long a watch may say nothing. Milliseconds. */
export interface Patience {
  readonly leastMs: number
  readonly mostMs: number
  /** A watch that has said nothing for so long is begun again; absent where the connection itself notices that the server is gone. */
  readonly idleMs?: number
}

/**
 * Keeps what a source tells up to date until the signal: lists once, then watches, and after a break goes on from the last revision. What is known stays while the
 * server is away. Attempts are apart by twice as long each time, at random, so that many nodes do not come back at once. Throws what is not a UnavailableError: a defect.
 */
export async function follow<Revision, Answer>(source: Source<Revision, Answer>, { leastMs, mostMs, idleMs }: Patience, signal: AbortSignal): Promise<void> {
  let waits = delays(leastMs, mostMs)
  while (!signal.aborted) {
    const watching = new AbortController()
    const idle = silence(idleMs, () => watching.abort())
    try {
      if (source.known() === undefined) await source.list(signal)
      const after = source.known()
      if (after === undefined) throw new UnavailableError('the store was listed, and named no revision')
      idle.heard()
      for await (const answer of source.watch(after, AbortSignal.any([signal, watching.signal]))) {
        idle.heard()
        if (!source.apply(answer)) break
        source.live?.(true)
        waits = delays(leastMs, mostMs)
      }
    } catch (cause) {
      // The source's own state says what was wrong.
      if (!(cause instanceof UnavailableError)) throw cause
    } finally {
      idle.end()
      source.live?.(false)
    }
    await pause(waits.next().value, signal)
  }
}

function silence(limitMs: number | undefined, broken: () => void): { heard(): void; end(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined
  const end = () => clearTimeout(timer)
  return {
    heard() {
      end()
      if (limitMs !== undefined) timer = setTimeout(broken, limitMs)
    },
    end,
  }
}
