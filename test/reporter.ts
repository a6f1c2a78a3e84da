import { appendFileSync } from 'node:fs'
import { relative } from 'node:path'

// Mocha wants all frames of a stack: of one that is full Bun makes gigabytes of text, in half a minute.
Error.stackTraceLimit = 50

/** What a test process tells the run, one JSON object per line. */
export interface Outcome {
  readonly state: 'passed' | 'failed' | 'skipped'
  /** Suites and test, joined by ` › `. */
  readonly title: string
  readonly ms: number
  /**
   * Of a failure: what was thrown, with the difference and the stack. Of a skip: its reason, empty when none was given.
   */
  readonly text: string
}

/**
 * The mocha reporter behind test/run.ts: appends an Outcome to the file PLUMB_REPORT as each test ends, so that a
 * process that dies loses nothing. The start of a test and the end of all have lines, too.
 */
export default class Reporter {
  constructor(runner: Mocha.Runner) {
    const file = process.env['PLUMB_REPORT']
    if (!file) throw new Error('Cannot report: PLUMB_REPORT is not set; run tests with test/run.ts')
    const write = (line: object) => appendFileSync(file, `${JSON.stringify(line)}\n`)
    const tell = (state: Outcome['state'], test: Mocha.Test | Mocha.Hook, text = '') =>
      write({ state, title: test.titlePath().join(' › '), ms: test.duration ?? 0, text } satisfies Outcome)
    runner.on('test', (test) => write({ state: 'begun', title: test.titlePath().join(' › ') }))
    runner.on('pass', (test) => tell('passed', test))
    runner.on('pending', (test) => tell('skipped', test, reason(test)))
    runner.on('fail', (test, thrown) => tell('failed', test, `${described(thrown)}${again(test)}`))
    runner.on('end', () => write({ state: 'end' }))
  }
}

// PLUMB_SEED is there when the file draws numbers by test/support/seed.ts.
function again({ file = '' }: Mocha.Test | Mocha.Hook): string {
  const seed = process.env['PLUMB_SEED']
  return seed === undefined
    ? ''
    : `\nseed ${seed}; the same once more: PLUMB_SEED=${seed} npm test -- ${relative('.', file)}`
}

function reason(test: Mocha.Test): string {
  for (let one: ((Mocha.Test | Mocha.Suite) & { skipped?: string }) | undefined = test; one; one = one.parent)
    if (one.skipped) return one.skipped
  return ''
}

function described(thrown: Error & { expected?: unknown; actual?: unknown; stdout?: string; stderr?: string }): string {
  const text = thrown?.stack?.includes(thrown.message) ? thrown.stack : `${thrown?.message}\n${thrown?.stack ?? ''}`
  const cause = thrown?.cause instanceof Error ? `\ncaused by ${thrown.cause.stack}` : ''
  return `${text}${cause}`
}
