import type { Failure, Failures } from './failures.ts'
import type { Outcome, Part } from './part.ts'

/** So long until what failed is tried again, in milliseconds: what concerns the node soon, what concerns single things later each time. */
const [RETRY_MS, LONGEST_RETRY_MS] = [1000, 30_000]

/** Who is told of what the parts do. */
export interface Hooks {
  /** Where each part's failures are told, under its name. */
  readonly failures: Pick<Failures, 'report'>
  /** A failure that the part's step before did not have (`isNew`), or has again. */
  failed(text: string, isNew: boolean): void
  /** After each step: which part, and how long it took in seconds. */
  stepped(part: Part, seconds: number): void
  /** Whether what a step threw ends the agent. */
  isFatal(cause: unknown): boolean
}

/** Runs every part in a loop of its own, so that a slow one holds back no other; tries again what failed. */
export class Scheduler {
  readonly #parts: readonly Part[]
  readonly #hooks: Hooks
  readonly #since = new Map<Part, number>()
  readonly #last = new Map<Part, 'complete' | 'incomplete'>()

  constructor(parts: readonly Part[], hooks: Hooks) {
    this.#parts = parts
    this.#hooks = hooks
  }

  /** Steps the parts until the signal. `end` ends that signal: it is called when a step threw what ends the agent, which this then throws. */
  async run(resyncMs: number, signal: AbortSignal, end: () => void): Promise<void> {
    const resync = resyncMs > 0 ? setInterval(() => this.renew('resync'), resyncMs) : undefined
    try {
      const ended = await Promise.allSettled(this.#parts.map((part) => this.#loop(part, signal).finally(end)))
      for (const one of ended) if (one.status === 'rejected') throw one.reason
    } finally {
      clearInterval(resync)
    }
  }

  /** Every part looks at everything anew. */
  renew(why: string): void {
    for (const part of this.#parts) {
      part.doubt?.()
      part.wakes.poke(why)
    }
  }

  /** The part that has been in one step for the longest time, and since when, by performance.now(); undefined while all wait for something to do. */
  busy(): { readonly name: string; readonly since: number } | undefined {
    const [first] = [...this.#since].sort(([, a], [, b]) => a - b)
    return first && { name: first[0].name, since: first[1] }
  }

  /** Whether the last step of each of the others left nothing undone that concerns the node. */
  isComplete(except: Part): boolean {
    return this.#parts.every((part) => part === except || this.#last.get(part) === 'complete')
  }

  async #loop(part: Part, signal: AbortSignal): Promise<void> {
    let before = new Set<string>()
    let retryMs = RETRY_MS
    for (let why = await part.wakes.next(0); !signal.aborted; why = await part.wakes.next(part.quietMs)) {
      const started = performance.now()
      this.#since.set(part, started)
      const outcome = await this.#step(part, why).finally(() => this.#since.delete(part))
      const { failures = [] } = outcome
      for (const { text } of failures) this.#hooks.failed(text, !before.has(text))
      before = new Set(failures.map(({ text }) => text))
      const isOfNode = failures.some(({ scope }) => scope === 'node')
      this.#last.set(part, outcome.isWaiting || isOfNode ? 'incomplete' : 'complete')
      const isUndone = failures.length > 0 || outcome.isIncomplete === true
      if (isUndone) part.wakes.poke('retry', retryMs)
      // What fails for single things goes on failing, mostly, until an event tells of it.
      retryMs = isUndone && !isOfNode ? Math.min(LONGEST_RETRY_MS, retryMs * 2) : RETRY_MS
      this.#hooks.failures.report(part.name, failures)
      this.#hooks.stepped(part, (performance.now() - started) / 1000)
    }
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
