// The commands of `plumb` for people. Begin to read at `main` below. Each command is a file of the same name, and
// `commands.ts` is the table of them. The folders `demo/`, `explain/` and `help/` hold the larger commands.
import { PAIR_COMMAND } from '../agent/policy/pair-command.ts'
import type { Io } from '../lib/cni/call.ts'
import { ValueError } from '../lib/text/errors.ts'
import { suggestion } from '../lib/text/shape.ts'
import { version } from '../package.json'
import { commands } from './commands.ts'
import { wantsJson } from './options.ts'
import { fail, print } from './output.ts'

/**
 * Runs `plumb ARGV` and returns the exit status. `plugin` finds a plugin of this executable. The status is 0 for done,
 * 1 for a failure, 2 for a wrong command line or configuration. Never throws.
 */
export async function main(argv: string[], plugin: Io['plugin']): Promise<number> {
  const [name = '--help', ...rest] = argv
  try {
    if (/^(--help|-h|help)$/.test(name)) {
      const { help } = await import('./help.ts')
      const status = await help(rest, { version, commands, plugin })
      return argv.length === 0 ? 2 : status
    }
    if (/^(--version|-V|version)$/.test(name)) {
      print(`plumb ${version}`)
      return 0
    }
    // The scripts in conf/completions call this. No help names it.
    if (name === '__complete') {
      const { complete } = await import('./complete.ts')
      const found = await complete(rest, commands)
      if (found.length > 0) print(found.join('\n'))
      return 0
    }
    // The agent starts this for a question about policies. No help names it.
    if (name === PAIR_COMMAND) return await (await import('./policy-pairs.ts')).answerPairs()
    const command = Object.hasOwn(commands, name) ? commands[name] : undefined
    if (!command) {
      const hint = suggestion(name, new Map(Object.keys(commands).map((one) => [one, one])))
      throw new ValueError(`plumb has no command "${name}"${hint}; see plumb --help`)
    }
    const { run } = await command.load()
    return await run(rest, plugin)
  } catch (cause) {
    return fail(cause, wantsJson(rest))
  }
}
