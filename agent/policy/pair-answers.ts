import { ValueError } from '../../lib/text/errors.ts'
import { inPieces } from '../scheduler/pieces.ts'
import { cellOf, matrixOf } from './matrix.ts'
import type { PairKnowledge } from './pairs.ts'
import { type PairQuestion, readLines } from './snapshot.ts'

// The process that the agent starts for a question about all pairs of pods (pair-questions.ts).

/** What the process answers: the answer, or why there is none. */
export type PairAnswer = { readonly answer: unknown } | { readonly refused: string }

/** The most work of the matrix and of its cells, in milliseconds. */
const MOST_MS = 20_000
const MOST = {
  ms: MOST_MS,
  error: () => new ValueError(`This takes longer than ${MOST_MS / 1000} s: want plumb policy test FROM TO PORT`),
}

/** Answers the lines of a question. Throws SyntaxError for lines that cannot be read. */
export async function answerLines(text: string): Promise<PairAnswer> {
  const { question, known } = readLines(text)
  try {
    return { answer: await answerOf(question, known) }
  } catch (cause) {
    if (cause instanceof ValueError) return { refused: cause.message }
    throw cause
  }
}

async function answerOf(question: PairQuestion, known: PairKnowledge): Promise<unknown> {
  if (question.about === 'matrix') return inPieces(matrixOf(known), MOST)
  if (question.about === 'cell') return inPieces(cellOf(known, question.from, question.to), MOST)
  const { comparisonOf, draftsFrom, draftsOf, MOST: mostOfComparison } = await import('./comparison.ts')
  const reading = 'text' in question ? draftsOf(question.text) : draftsFrom(question.documents)
  return inPieces(comparisonOf(known, await inPieces(reading, mostOfComparison)), mostOfComparison)
}
