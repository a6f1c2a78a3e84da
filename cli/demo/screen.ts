import { isatty } from 'node:tty'
import { CniError } from '../../lib/text/errors.ts'
import { write } from '../output.ts'

const COLUMNS = 100
const [green, red, plain] = isatty(1) && !process.env['NO_COLOR'] ? ['\x1b[32m', '\x1b[31m', '\x1b[0m'] : ['', '', '']

/** A failed step. Its line is already on the screen. */
export class StepError extends Error {
  override name = 'StepError'
}

let steps = 0

/** The number of successful steps. */
export function stepsDone(): number {
  return steps
}

/**
 * Writes one line of the screen. Shows the title during the work, then the time in ms and the fact that the work
 * returns. Throws StepError with the title when the work throws.
 */
export async function step(title: string, work: () => Promise<string>): Promise<void> {
  write(`  ${title.padEnd(38)} `)
  const started = performance.now()
  const took = () => `${(performance.now() - started).toFixed(0).padStart(5)} ms`
  try {
    const fact = await work()
    write(`${green}ok${plain} ${took()}  ${fact}\n`)
    steps += 1
  } catch (cause) {
    write(`${red}FAILED${plain} ${took()}\n${reason(cause as Error)}\n`)
    throw new StepError(title, { cause })
  }
}

/** A text in green or red, on a terminal. */
export function painted(text: string, isGood: boolean): string {
  return `${isGood ? green : red}${text}${plain}`
}

/** Compares two values as JSON. Throws Error with both values when they differ. */
export function expect(what: string, seen: unknown, want: unknown): void {
  const [is, should] = [JSON.stringify(seen), JSON.stringify(want)]
  if (is !== should) throw new Error(`${what}: saw ${is}, want ${should}`)
}

function reason(cause: Error): string {
  const text = cause instanceof CniError && cause.details ? `${cause.message}\n${cause.details}` : cause.message
  return text
    .trimEnd()
    .split('\n')
    .map((line) => `    ${line}`.slice(0, 4 * COLUMNS))
    .join('\n')
}
