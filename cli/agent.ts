import { run as agent } from '../agent/index.ts'
import { FLAGS, type Flag } from '../agent/settings/flags.ts'
import { version } from '../package.json'
import type { Entry, Grammar } from './options.ts'
import { print, table } from './output.ts'

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 2,
  about: "give this node its part of the network, and make other nodes' pods reachable",
}

/** What may follow `plumb agent`. Flags without an effect are left out. */
export const grammar: Grammar = {
  options: [
    ...Object.entries<Flag>(FLAGS).flatMap(([name, { value, about, idle }]) =>
      idle === undefined ? [{ word: `--${name}`, about, ...(value !== undefined && { value }) }] : [],
    ),
    { word: '--force', about: 'with cleanup: pods that live lose their network' },
  ],
  words: ['cleanup'],
}

/** Runs `plumb agent ARGV` and returns the exit status. Throws ValueError for wrong settings. */
export function run(argv: readonly string[]): Promise<number> {
  return agent(argv, { version, print, table: (rows) => table([], rows) })
}
