import type { Failure, Failures } from './failures.ts'
import type { Outcome, Part } from './part.ts'
import { isTraced, traced } from './spans.ts'

/**
 * The pause before a failed step runs again, in milliseconds. Failures of the node use the short pause. Other failures
 * double it each time.
 */
const [RETRY_MS, LONGEST_RETRY_MS] = [1000, 30_000]

/** The receiver of the results of the parts. */
export interface Hooks {
  /** Receives each part's failures under its name. */
  readonly failures: Pick<Failures, 'report'>
  /** Called for each failure. `isNew` says that the part's previous step did not have it. */
  failed(text: string, isNew: boolean): void
  /** Called after each step, with the duration in seconds. */
  stepped(part: Part, seconds: number): void
  /** Whether an error of a step ends the agent. */
  isFatal(cause: unknown): boolean
}

/** Runs each part in a loop of its own, so that a slow part does not delay the others. It repeats failed steps. */
export class Scheduler {
  readonly #parts: readonly Part[]
  readonly #hooks: Hooks
  readonly #since = new Map<Part, number>()
  readonly #last = new Map<Part, 'complete' | 'incomplete'>()

  constructor(parts: readonly Part[], hooks: Hooks) {
    this.#parts = parts
    this.#hooks = hooks
  }

  /**
   * Runs the parts until the signal. After a fatal error of a step, it calls `end` and throws the error. `end` must end
   * that signal.
   */
  async run(resyncMs: number, signal: AbortSignal, end: () => void): Promise<void> {
    const resync = resyncMs > 0 ? setInterval(() => this.resync('resync'), resyncMs) : undefined
    try {
      const ended = await Promise.allSettled(this.#parts.map((part) => this.#loop(part, signal).finally(end)))
      for (const one of ended) if (one.status === 'rejected') throw one.reason
    } finally {
      clearInterval(resync)
    }
  }

  /** Makes every part check everything again. */
  resync(why: string): void {
    for (const part of this.#parts) {
      part.invalidate?.()
      part.queue.add(why)
    }
  }

  /**
   * The part that has been in one step for the longest time, with the start of the step by performance.now(). Undefined
   * while all parts wait.
   */
  busy(): { readonly name: string; readonly since: number } | undefined {
    const [first] = [...this.#since].sort(([, a], [, b]) => a - b)
    return first && { name: first[0].name, since: first[1] }
  }

  /** Whether the last step of every other part was complete: it did not wait, and had no failure of the node. */
  isComplete(except: Part): boolean {
    return this.#parts.every((part) => part === except || this.#last.get(part) === 'complete')
  }

  async #loop(part: Part, signal: AbortSignal): Promise<void> {
    let before = new Set<string>()
    let retryMs = RETRY_MS
    for (let why = await part.queue.next(0); !signal.aborted; why = await part.queue.next(part.quietMs)) {
      const started = performance.now()
      this.#since.set(part, started)
      const step = isTraced() ? this.#traced(part, why) : this.#step(part, why)
      const outcome = await step.finally(() => this.#since.delete(part))
      const { failures = [] } = outcome
      for (const { text } of failures) this.#hooks.failed(text, !before.has(text))
      before = new Set(failures.map(({ text }) => text))
      const isOfNode = failures.some(({ scope }) => scope === 'node')
      this.#last.set(part, outcome.isWaiting || isOfNode ? 'incomplete' : 'complete')
      const isUndone = failures.length > 0 || outcome.isIncomplete === true
      if (isUndone) part.queue.add('retry', retryMs)
      // A failure of single things mostly lasts until an event announces a change.
      retryMs = isUndone && !isOfNode ? Math.min(LONGEST_RETRY_MS, retryMs * 2) : RETRY_MS
      this.#hooks.failures.report(part.name, failures)
      this.#hooks.stepped(part, (performance.now() - started) / 1000)
    }
  }

  async #traced(part: Part, why: readonly string[]): Promise<Outcome> {
    const attributes = { 'plumb.part': part.name, 'plumb.triggers': why }
    const outcome = ({ failures = [], isWaiting }: Outcome) => ({
      attributes: { ...(isWaiting && { 'plumb.outcome': 'waiting' }) },
      error: failures[0] && failures.map(({ text }) => text).join('; '),
    })
    return traced(`step ${part.name}`, { attributes, outcome }, () => this.#step(part, why))
  }

  async #step(part: Part, why: readonly string[]): Promise<Outcome> {
    try {
      return await part.step(why)
    } catch (cause) {
      if (this.#hooks.isFatal(cause)) throw cause
      const failure: Failure = { scope: 'node', text: `${part.trouble}: ${(cause as Error).message}` }
      return { failures: [failure] }
    }
  }
}
