import { delays, pause } from './pause.ts'

/** A server does not answer, or not as it should: what was asked can be asked again. */
export class UnavailableError extends Error {
  override name = 'UnavailableError'
}

/**
 * A source that the agent lists as of a revision and then watches from there: a prefix of etcd, or a kind of Kubernetes
 * objects. `Revision` is the revision type of the server.
 */
export interface Source<Revision, Answer> {
  /** The revision up to which all data is known. Undefined when the source must be listed first. */
  known(): Revision | undefined
  /**
   * Lists all data and applies the differences. Data that is still valid is never missing, not even for a moment.
   * Throws UnavailableError when the server does not answer.
   */
  list(signal: AbortSignal): Promise<void>
  /** Runs one watch, from the revision after `after`. It ends, or throws UnavailableError, when the connection ends. */
  watch(after: Revision, signal: AbortSignal): AsyncIterable<Answer>
  /**
   * Applies an answer of the watch. Returns false when the server no longer has all changes since the last revision
   * (etcd: compacted; Kubernetes: 410 Gone). The source is then listed again.
   */
  apply(answer: Answer): boolean
  /** Called with true when a watch keeps the data up to date, and with false when it no longer does. */
  live?(isLive: boolean): void
  /**
   * Called when two watches in a row were silent for too long. A server whose data was restored from a backup says
   * nothing until it is past the known revision. The source then forgets its revision, so that it is listed again.
   */
  relist?(): void
}

/** Waits between attempts, and the longest silence of a watch. Milliseconds. */
export interface Backoff {
  readonly leastMs: number
  readonly mostMs: number
  /** After this silence, the watch is restarted. Absent when the connection itself detects a lost server. */
  readonly idleMs?: number
}

/**
 * Keeps the data of a source up to date until the signal. Lists the source once and then watches it. After a break,
 * goes on from the last revision. The known data stays while the server is away. The wait between attempts doubles each
 * time and has a random part, so that many nodes do not come back at once. Catches only UnavailableError. Any other
 * error is a defect and is thrown.
 */
export async function follow<Revision, Answer>(
  source: Source<Revision, Answer>,
  { leastMs, mostMs, idleMs }: Backoff,
  signal: AbortSignal,
): Promise<void> {
  let waits = delays(leastMs, mostMs)
  let silences = 0
  while (!signal.aborted) {
    const watching = new AbortController()
    const idle = silence(idleMs, () => watching.abort())
    try {
      if (source.known() === undefined) await source.list(signal)
      const after = source.known()
      if (after === undefined) throw new UnavailableError('the store was listed, and named no revision')
      idle.answered()
      for await (const answer of source.watch(after, AbortSignal.any([signal, watching.signal]))) {
        idle.answered()
        if (!source.apply(answer)) break
        source.live?.(true)
        waits = delays(leastMs, mostMs)
        silences = 0
      }
      // One silence may also be a connection that nobody serves any more.
      if (watching.signal.aborted && ++silences > 1) source.relist?.()
    } catch (cause) {
      // The source keeps the error in its own state.
      if (!(cause instanceof UnavailableError)) throw cause
    } finally {
      idle.end()
      source.live?.(false)
    }
    await pause(waits.next().value, signal)
  }
}

function silence(limitMs: number | undefined, broken: () => void): { answered(): void; end(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined
  const end = () => clearTimeout(timer)
  return {
    answered() {
      end()
      if (limitMs !== undefined) timer = setTimeout(broken, limitMs)
    },
    end,
  }
}
