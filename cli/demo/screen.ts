import { isatty } from 'node:tty'
import { CniError } from '../../lib/text/errors.ts'
import { write } from '../output.ts'

const COLUMNS = 100
const [green, red, plain] = isatty(1) && !process.env['NO_COLOR'] ? ['\x1b[32m', '\x1b[31m', '\x1b[0m'] : ['', '', '']

/** A step that was not as it says; its screen line is written. */
export class StepError extends Error {
  override name = 'StepError'
}

let steps = 0

/** How many steps were as they say. */
export function stepsDone(): number {
  return steps
}

/** One line of the screen: the title while the work goes on, then the fact that it gives and the time it took. Throws StepError naming the title when the work throws. */
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

/** Throws Error saying what was seen and what was to be seen, when they are not equal. */
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
