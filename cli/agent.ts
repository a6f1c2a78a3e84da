import { run as agent } from '../agent/index.ts'
import { version } from '../package.json'
import { print, table } from './output.ts'

/** Runs `plumb agent ARGV` and returns the exit status. Throws ValueError for wrong settings. */
export function run(argv: readonly string[]): Promise<number> {
  return agent(argv, { version, print, table: (rows) => table([], rows) })
}
