import { ValueError } from '../../lib/text/errors.ts'
import { askOwnProgram } from '../node/own-program.ts'
import { pause } from '../scheduler/pause.ts'
import type { Comparison } from './comparison.ts'
import type { CellView, PolicyMatrix } from './matrix.ts'
import type { PairAnswer } from './pair-answers.ts'
import { PAIR_COMMAND } from './pair-command.ts'
import type { PairKnowledge } from './pairs.ts'
import { type DraftTexts, linesOf, type PairQuestion } from './snapshot.ts'

const LIMITS = {
  ms: 60_000,
  bytes: 512 * 1024 ** 2,
  advice: 'want fewer policies at a time, or one connection: plumb policy test FROM TO PORT',
}
/** The matrix is made again after so many times the time that it took, and after this many milliseconds at the latest. */
const [SHARE, LONGEST_MS] = [10, 10_000]

/**
 * Questions about all pairs of pods. Each is answered in a process of its own, from the objects of the moment in which
 * the process starts, so that no step of the agent waits for it. There is one such process at a time. All questions throw
 * NoAnswerError when it ends without an answer, and as `known`.
 */
export class PairQuestions {
  readonly #known: () => PairKnowledge
  readonly #end = new AbortController()
  #last: Promise<unknown> = Promise.resolve()
  /** Counts the changes of what is known. */
  #version = 0
  #matrix: { readonly version: number; readonly answer: Promise<PolicyMatrix> } | undefined
  /** A matrix that somebody waits for, and that has not begun yet. */
  #next: Promise<PolicyMatrix> | undefined
  #restsUntil = 0

  constructor(known: () => PairKnowledge) {
    this.#known = known
  }

  /** What is known has changed: earlier answers do not count any more. */
  changed(): void {
    this.#version++
  }

  /**
   * Which namespaces reach which. Readers share an answer as long as nothing has changed. Else they wait together, so
   * that many readers take a part of a core only.
   */
  matrix(): Promise<PolicyMatrix> {
    if (this.#matrix?.version === this.#version) return this.#matrix.answer
    this.#next ??= this.#rested().then(() => this.#inTurn(() => this.#makeMatrix()))
    return this.#next
  }

  /** The pods behind a cell of the matrix. */
  cell(from: string, to: string): Promise<CellView> {
    return this.#inTurn(() => this.#ask<CellView>({ about: 'cell', from, to }))
  }

  /** What policies would change that nobody has applied. Throws ValueError for wrong policies, and for too much work. */
  comparison(drafts: DraftTexts): Promise<Comparison> {
    return this.#inTurn(() => this.#ask<Comparison>({ about: 'comparison', ...drafts }))
  }

  /** Ends the process that answers, if there is one. */
  stop(): void {
    this.#end.abort()
  }

  #rested(): Promise<void> {
    return pause(Math.max(0, this.#restsUntil - performance.now()), this.#end.signal)
  }

  async #makeMatrix(): Promise<PolicyMatrix> {
    this.#next = undefined
    const begun = performance.now()
    const made = { version: this.#version, answer: this.#ask<PolicyMatrix>({ about: 'matrix' }) }
    this.#matrix = made
    try {
      return await made.answer
    } catch (cause) {
      if (this.#matrix === made) this.#matrix = undefined
      throw cause
    } finally {
      const now = performance.now()
      this.#restsUntil = now + Math.min(SHARE * (now - begun), LONGEST_MS)
    }
  }

  // The objects are those of the moment in which this is called.
  async #ask<T>(question: PairQuestion): Promise<T> {
    const said = await askOwnProgram([PAIR_COMMAND], linesOf(question, this.#known()), LIMITS, this.#end.signal)
    const read = JSON.parse(said) as PairAnswer
    if ('refused' in read) throw new ValueError(read.refused)
    return read.answer as T
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work)
    this.#last = turn.catch(() => {})
    return turn
  }
}
