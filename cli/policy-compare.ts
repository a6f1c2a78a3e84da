import { readFileSync } from 'node:fs'
import { type Comparison, documentsOf } from '../agent/policy/comparison.ts'
import { comparisonWords } from '../agent/policy/comparison-words.ts'
import { atOnce } from '../agent/scheduler/pieces.ts'
import { ValueError } from '../lib/text/errors.ts'
import { askPolicy } from './ask-policy.ts'
import type { Given } from './options.ts'
import { print } from './output.ts'

/**
 * Runs `plumb policy compare FILE` and returns the exit status, as `diff` does: 0 when nothing would change, and 1 when
 * something would. Throws ValueError for a file that cannot be read, for what is no policy, and when no agent answers.
 */
export function compare([file, more]: readonly string[], values: Given['values']): number {
  if (file === undefined || more !== undefined)
    throw new ValueError('plumb policy compare takes one FILE, or - for standard input; see plumb policy --help')
  const compared = askPolicy<Comparison>({ command: 'compare', documents: atOnce(documentsOf(textOf(file))) }, values)
  print(values.json ? JSON.stringify(compared, null, 4) : comparisonText(compared))
  return compared.namespaces.length + compared.isolation.length > 0 ? 1 : 0
}

function textOf(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    throw new ValueError(`Cannot read the policies: ${(cause as Error).message}`)
  }
}

// Formats what policies would change.
function comparisonText(compared: Comparison): string {
  const { pairs, more } = compared
  const changes = pairs.flatMap(({ from, to, ports }) =>
    ports.map((one) => `  ${from} to ${to} ${one.ports} ${one.passes ? 'passes' : 'is refused'} then: ${one.reason}`),
  )
  return [...comparisonWords(compared), ...changes, ...(more > 0 ? [`  and ${more} more pairs of pods`] : [])].join(
    '\n',
  )
}
